package main

// The queue's verbs for operators, and the names of its entries.
func init() {
	for _, m := range []mutation{
		{
			Name: "inspect: a server that lags is asked",
			Func: "(*Queue).list",
			Old:  "err := s.Sync(ctx, q.path)",
			New:  "err := error(nil)",
			Test: "TestOperatorSeesWhatHasJustHappened/Len",
		},
		{
			Name: "inspect: a missing queue is an error",
			Func: "(*Queue).list",
			Old:  "if errors.Is(err, zk.ErrNoNode) {",
			New:  "if false {",
			Test: "TestListOfThousands/embedded",
		},
		{
			Name: "inspect: the attempts before an entry was moved are forgotten",
			Old:  "return n.attempts + max(",
			New:  "return max(",
			Test: "TestListSaysWhatBecameOfEachEntry/embedded",
		},
		{
			Name: "inspect: Peek shows what is not due",
			Old:  "n.due > time.Now().UnixMilli()",
			New:  "false",
			Test: "TestPeekSkipsWhatCannotBeTaken/embedded",
		},
		{
			Name: "inspect: an unreadable entry is in the way of Peek",
			Func: "(*Queue).Peek",
			Old:  "case errors.Is(err, zk.ErrNoAuth):",
			New:  "case false:",
			Test: "TestPeekSkipsWhatCannotBeTaken/embedded",
		},
		{
			Name: "inspect: all entries are read at once",
			Old:  "slices.Chunk(entries, reads)",
			New:  "slices.Chunk(entries, 1+len(entries))",
			Test: "TestListOfThousands/embedded",
		},
		{
			Name: "inspect: an entry that is gone ends a list",
			Func: "(*Queue).inspect",
			Old:  "case errors.Is(err, zk.ErrNoNode), err == nil",
			New:  "case err == nil",
			Test: "TestEntryChangesDuringList",
		},
		{
			Name: "inspect: a reserved entry that may not be read ends a list",
			Func: "(*Queue).inspect",
			Old:  "case errors.Is(err, zk.ErrNoAuth):\n			i.HeldSince = time.UnixMilli(stat.Mtime)\n			return i, nil\n		case errors.Is(err, zk.ErrNoNode)",
			New:  "case errors.Is(err, zk.ErrNoNode)",
			Test: "TestOperatorWithoutPermission/embedded",
		},
		{
			Name: "inspect: a reserved entry is not removed",
			Func: "(*Queue).Remove",
			Old:  "errors.Is(err, zk.ErrNotEmpty) && atEntry",
			New:  "false",
			Test: "TestRemove/embedded",
		},
		{
			Name: "inspect: an entry whose claim has gone meanwhile is not removed",
			Func: "(*Queue).Remove",
			Old:  "case noNode && failed >= 0, ",
			New:  "case ",
			Test: "TestRemoveAtEachStep/nack",
		},
		{
			Name: "inspect: what an earlier attempt has removed is an error",
			Func: "(*ending).missing",
			Old:  "if e.executed.Load() {",
			New:  "if false {",
			Test: "TestLostAnswersOfRemoveAndFree",
		},
		{
			Name: "inspect: a refused attempt counts as executed",
			Func: "(*ending).try",
			Old:  "e.executed.Store(before)",
			New:  "_ = before",
			Test: "TestRemove/embedded",
		},
		{
			Name: "inspect: the reservation after the one to be freed is freed, too",
			Func: "(*Queue).Free",
			Old:  "if len(claims) == 0 {",
			New:  "if s != nil {",
			Test: "TestLostAnswersOfRemoveAndFree",
		},
		{
			Name: "inspect: Free asks a server that lags",
			Func: "(*Queue).Free",
			Old:  "err := s.Sync(ctx, q.path)",
			New:  "err := error(nil)",
			Test: "TestOperatorSeesWhatHasJustHappened/Free",
		},
		{
			Name: "inspect: Free does not ring",
			Func: "(*Queue).Free",
			Old:  "append(deletions, ring(s, q.path, id))...",
			New:  "deletions...",
			Test: "TestFree/register/embedded",
		},
		{
			Name: "inspect: Free fails where it cannot ring",
			Func: "(*Queue).Free",
			Old:  "err != nil && failed == len(claims)",
			New:  "failed < -1",
			Test: "TestFree/.*/embedded",
		},
		{
			Name: "inspect: an ID has slashes",
			Old:  "strings.Contains(id, \"/\")",
			New:  "strings.Contains(id, \"//\")",
			Test: "TestOperatorsVerbsRefuseWhatIsNoID",
		},
		{
			Name: "inspect: an ID is no path",
			Old:  " || protocol.ValidatePath(\"/\"+id) != nil",
			New:  "",
			Test: "TestOperatorsVerbsRefuseWhatIsNoID",
		},
		{
			Name: "inspect: each change of the last entry costs Drained a listing",
			Func: "awaitDeletion",
			Old:  "err := s.WaitAny(ctx, w); err != nil",
			New:  "err := s.WaitAny(ctx, w); true",
			Test: "TestDrainedIsQuiet",
		},
		{
			Name: "inspect: Drained does not wait for an unreadable entry",
			Func: "(*Queue).Drained",
			Old:  "if errors.Is(err, zk.ErrNoAuth) {",
			New:  "if false {",
			Test: "TestDrainedOfWhatMayNotBeRead/embedded",
		},
	} {
		if m.File == "" {
			m.File = "queue/inspect.go"
		}
		mutations = append(mutations, m)
	}
}
