package main

// The data directory of the embedded server.
func init() {
	const dir = "recipestest/embedded/"
	mutations = append(mutations, []mutation{
		{
			Name: "journal: a write is acknowledged before the disk has it",
			File: dir + "journal.go",
			Old:  "	if err := j.log.flush(j.dir.sync); err != nil {",
			New:  "	if err := j.log.out.Flush(); err != nil {",
			Test: "TestNobodyLearnsOfAWriteBeforeItHasReachedTheDisk|TestServerEndsWhenItsDataCannotBeWritten",
		},
		{
			Name: "journal: a client is told that a session has ended before the disk has it",
			File: dir + "conn.go",
			Old:  "	if s.journal != nil {\n		s.await(s.tree.zxid)",
			New:  "	if s.journal != nil && ss != nil {\n		s.await(s.tree.zxid)",
			Test: "TestNobodyLearnsOfAWriteBeforeItHasReachedTheDisk",
		},
		{
			Name: "journal: followers apply what the disk does not have",
			File: dir + "follower.go",
			Old:  "if x.zxid > f.srv.durable {",
			New:  "if f != f.srv.front && x.zxid > f.srv.durable+1<<40 {",
			Test: "TestNobodyLearnsOfAWriteBeforeItHasReachedTheDisk",
		},
		{
			Name: "journal: reads behind a write are carried out when it is on the disk, all at once",
			File: dir + "journal.go",
			Old:  "waits := len(c.deferred) > 0 && !answeredByLeader || c",
			New:  "waits := c",
			Test: "TestAnswersBehindAWriteComeInOrderHoweverLongTheyAre",
		},
		{
			Name: "journal: any number of writes waits for the disk",
			File: dir + "journal.go",
			Old:  " && len(s.journal.pending) <= maxBacklog {",
			New:  " {",
			Test: "TestTooManyWritesWaitForTheDisk",
		},
		{
			Name: "journal: the server goes on when its data cannot be written",
			File: dir + "journal.go",
			Old:  "			s.fail(err)\n			break\n",
			New:  "			err = nil\n",
			Test: "TestServerEndsWhenItsDataCannotBeWritten",
		},
		{
			Name: "journal: ends of sessions are not kept",
			File: dir + "state.go",
			Old:  "			delete(l.sessions, x.ended.id)\n",
			New:  "",
			Test: "TestDirKeepsNodesAndSessions",
		},
		{
			Name: "journal: damage before other records passes for an interrupted write",
			File: dir + "record.go",
			Old:  "if f.followed(b, at, end) {",
			New:  "if false {",
			Test: "TestDamageIsReportedWithFileAndOffset",
		},
		{
			Name: "journal: the payload's checksum is not compared",
			File: dir + "record.go",
			Old:  "if checksum(payload) != binary.BigEndian.Uint32(b[at+8:]) {",
			New:  "if false {",
			Test: "TestDamageIsReportedWithFileAndOffset|TestTornLastWriteIsDropped",
		},
		{
			Name: "journal: logs may leave transactions out",
			File: dir + "state.go",
			Old:  "case x.zxid != l.tree.zxid+1:",
			New:  "case x.zxid <= l.tree.zxid:",
			Test: "TestDamageIsReportedWithFileAndOffset",
		},
		{
			Name: "journal: a log goes on where none ended",
			File: dir + "directory.go",
			Old:  "if file.zxid != zxid || f.zxid != zxid {",
			New:  "if false {",
			Test: "TestMissingFilesAreReported",
		},
		{
			Name: "journal: two servers use one directory",
			File: dir + "directory_flock.go",
			Old:  "		if errors.Is(err, syscall.EWOULDBLOCK) {\n			return nil, errLocked\n		}\n		return nil, &os.PathError{Op: \"lock\", Path: path, Err: err}",
			New:  "		return os.Open(path)",
			Test: "TestOneServerUsesADirectory",
		},
		{
			Name: "journal: a child that has not begun its program keeps the directory locked",
			File: dir + "directory_flock.go",
			Old:  "	syscall.Flock(int(f.Fd()), syscall.LOCK_UN)\n",
			New:  "",
			Test: "TestCopiesOfItsDescriptorsDoNotKeepADirectoryLocked",
		},
	}...)
}
