package embedded

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

const (
	// logSize is when a log is replaced by a snapshot: at this size beyond twice the last
	// snapshot's.
	logSize = 64 << 20

	// maxBacklog is how many bytes may wait for the disk. Beyond that, writes wait before they are
	// executed.
	maxBacklog = 16 << 20

	// moreFiles is how long a snapshot waits for a descriptor.
	moreFiles = 100 * time.Millisecond
)

// A journal writes the transactions of a server to its data directory. One goroutine does that.
// Transactions that are committed while it writes and syncs a record go into the next record
// together, so many transactions share one sync.
type journal struct {
	srv     *Server
	dir     *directory
	logSize int64

	writer    sync.WaitGroup // the goroutine of run
	snapshots sync.WaitGroup // the goroutine of replace

	// The server's lock protects these.
	pending      []byte    // encoded transactions
	spare        []byte    // a second buffer, in use while pending is written
	work         sync.Cond // signalled when there is something pending, and when closing
	closing      bool
	over         bool // nothing will be written any more
	snapshotting bool
	limit        int64 // the size of a log at which it is replaced

	log *recordWriter // only the goroutine of run uses it
}

// openJournal loads a directory into the server, and begins a new log. The server has no clients
// yet.
func (s *Server) openJournal() (err error) {
	dir, err := openDirectory(s.cfg.Dir, s.cfg.sync)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			dir.close()
		}
	}()

	st, torn, err := dir.load()
	if err != nil {
		return err
	}
	if torn > 0 {
		s.log.Warn("the log ends with a write that was not acknowledged: it is dropped", "dir", dir.path, "bytes", torn)
	}

	if st != nil {
		s.restore(st)
	} else if err := dir.acknowledge(0); err != nil { // before there is a snapshot
		return err
	}

	// Each life begins with a snapshot. So the former log is never written to again, and the jump
	// of the zxids between two lives needn't be in a log.
	size, err := dir.store(s.snapshot())
	if err != nil {
		return err
	}

	log, err := dir.begin(s.tree.zxid)
	if err != nil {
		return err
	}
	if err := errors.Join(dir.acknowledge(s.tree.zxid), dir.removeBefore(s.tree.zxid)); err != nil {
		log.file.Close()
		return err
	}

	j := &journal{srv: s, dir: dir, logSize: s.cfg.logSize, log: log}
	j.work.L = &s.mu
	j.limit = j.logSize + 2*size
	s.journal, s.durable = j, s.tree.zxid
	s.front = s.Follower()
	j.writer.Go(j.run)
	return nil
}

// restore makes st the server's state. The timeouts of its sessions begin again.
func (s *Server) restore(st *state) {
	// Each life gets a zxid of its own, whatever the clock says, because the files are named after
	// it.
	st.tree.zxid = max(st.tree.zxid+1, s.tree.zxid)
	s.tree, s.sessions = st.tree, st.sessions
	s.nextSession = max(st.nextSession, s.nextSession)

	for _, ss := range s.sessions {
		s.touch(ss)
	}
	s.scheduleReaping()
	s.wakeBefore(s.reapAt)
}

// append adds a transaction to the next record. The caller holds the server's lock.
func (j *journal) append(x transaction) {
	j.pending = appendTransaction(j.pending, x)
	j.work.Signal()
}

// run writes records until the journal is closed or a file can't be written.
func (j *journal) run() {
	s := j.srv
	s.mu.Lock()
	defer s.mu.Unlock()

	for {
		for len(j.pending) == 0 && !j.closing {
			j.work.Wait()
		}
		if len(j.pending) == 0 {
			break
		}

		record, upto := j.pending, s.tree.zxid
		j.pending, j.spare = j.spare[:0], nil
		var replacement *state
		if j.log.size > j.limit && !j.snapshotting {
			replacement, j.snapshotting = s.snapshot(), true
		}

		s.mu.Unlock()
		replaced, err := j.write(record, upto, replacement)
		s.mu.Lock()

		if err != nil {
			s.fail(err)
			break
		}
		if replacement != nil && !replaced {
			j.snapshotting = false
			j.limit = j.log.size + j.logSize
		}
		if cap(record) <= maxBacklog {
			j.spare = record
		}

		s.durable = upto
		for _, f := range s.followers {
			s.wakeBefore(f.catchUp(time.Since(s.started)))
		}
		s.settled.Broadcast()
	}

	j.over = true
	s.settled.Broadcast()
}

// write writes a record of transactions up to a zxid, and returns once it has reached the disk. If
// replacement isn't nil, it is the state after the record, and a new log begins. But if no file can
// be opened now, the log goes on and replaced is false.
func (j *journal) write(record []byte, upto int64, replacement *state) (replaced bool, err error) {
	if err := j.log.write(record); err != nil {
		return false, err
	}
	if err := j.log.flush(j.dir.sync); err != nil {
		return false, err
	}

	if err := j.dir.acknowledge(upto); err != nil || replacement == nil {
		return false, err
	}

	log, err := j.dir.begin(replacement.tree.zxid)
	if isTooManyFiles(err) {
		os.Remove(filepath.Join(j.dir.path, fileName(kindLog, replacement.tree.zxid))) //nolint:errcheck // perhaps there is none
		j.srv.log.Warn("too many open files: the log is not replaced yet", "dir", j.dir.path, "error", err)
		return false, nil
	}

	if err == nil {
		err = j.log.file.Close()
		j.log = log
	}
	if err != nil {
		return false, err
	}

	j.snapshots.Go(func() { j.replace(replacement) })
	return true, nil
}

// isTooManyFiles reports whether opening a file failed because there are no descriptors left
// (connections may have taken them).
func isTooManyFiles(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// replace stores a snapshot and removes the files that it replaces. Meanwhile run goes on with
// another log.
func (j *journal) replace(st *state) {
	s := j.srv
	size, err := j.dir.store(st)
	for isTooManyFiles(err) {
		s.mu.Lock()
		closing := j.closing
		s.mu.Unlock()
		if closing {
			return // the log has everything
		}
		time.Sleep(moreFiles)
		size, err = j.dir.store(st)
	}

	if err == nil {
		err = j.dir.removeBefore(st.tree.zxid)
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.fail(err)
		return
	}

	j.snapshotting = false
	j.limit = j.logSize + 2*size
}

// close writes the pending transactions and unlocks the directory. Nothing may be committed after
// that.
func (j *journal) close() {
	j.srv.mu.Lock()
	j.closing = true
	j.work.Signal()
	j.srv.mu.Unlock()

	j.writer.Wait()
	j.snapshots.Wait()
	j.log.file.Close()
	j.dir.close()
}

// fail ends the server because something can't be written. A failed sync is not repeated, because
// the system may have dropped the data. The caller holds mu.
func (s *Server) fail(err error) {
	if s.err == nil {
		s.err = fmt.Errorf("embedded: %w", err)
		s.log.Error("the server ends, as its data cannot be written", "dir", s.cfg.Dir, "error", err)
	}
	s.end()
}

// await returns once the transactions up to zxid have reached the disk, or once nothing can reach
// it any more. Without a data directory it returns at once. The caller holds mu.
func (s *Server) await(zxid int64) {
	for s.durable < zxid && !s.journal.over {
		s.settled.Wait()
	}
}

// admit waits until a connection's next request may be executed, if the server has a data
// directory. It reports whether the connection still exists. The caller holds mu.
//
// Requests that the leader answers go on at once, so that many writes of a client can share a sync.
// All other requests wait for the answers before them. A connection also waits while too much is
// under way to the disk.
func (s *Server) admit(c *conn, answeredByLeader bool) bool {
	if s.journal == nil {
		return true
	}
	for !c.gone {
		waits := len(c.deferred) > 0 && !answeredByLeader || c.deferredSize > flushAt
		if !(waits && c.follower == s.front) && len(s.journal.pending) <= maxBacklog {
			return true
		}
		s.settled.Wait()
	}
	return false
}
