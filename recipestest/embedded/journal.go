package embedded

import (
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"
)

// maxBacklog is how many bytes may wait for the disk. Beyond that, writes wait before they are
// executed.
const maxBacklog = 16 << 20

// A journal writes the transactions of a server to its data directory. One goroutine does that.
// Transactions that are committed while it writes and syncs a record go into the next record
// together, so many transactions share one sync.
type journal struct {
	srv *Server
	dir *directory

	writer sync.WaitGroup // the goroutine of run

	// The server's lock protects these.
	pending []byte    // encoded transactions
	spare   []byte    // a second buffer, in use while pending is written
	work    sync.Cond // signalled when there is something pending, and when closing
	closing bool
	over    bool // nothing will be written any more

	// Only the goroutine of run uses these.
	limit int64 // the size of the data file at which it is replaced
}

// openJournal loads a directory into the server. The server has no clients yet.
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
		s.log.Warn("the data ends with a write that was not acknowledged: it is dropped", "dir", dir.path, "bytes", torn)
	}

	if st != nil {
		s.restore(st)
	}
	// Each life begins with a snapshot, so the jump of the zxids between two lives needn't be a
	// transaction.
	j := &journal{srv: s, dir: dir}
	j.work.L = &s.mu
	if err := j.replace(s.snapshot()); err != nil {
		return err
	}

	s.journal, s.durable = j, s.tree.zxid
	// Clients read front's tree, which shows only transactions that are on the disk.
	s.front = s.Follower()
	j.writer.Go(j.run)
	return nil
}

// snapshot returns a copy of the server's state. The caller holds mu.
func (s *Server) snapshot() *state {
	st := &state{tree: s.tree.clone(), sessions: make(map[int64]sessionRecord), nextSession: s.nextSession}
	for id, ss := range s.sessions {
		st.sessions[id] = ss.sessionRecord
	}
	return st
}

// restore makes st the server's state. The timeouts of its sessions begin again.
func (s *Server) restore(st *state) {
	// Zxids grow from life to life, whatever the clock says.
	st.tree.zxid = max(st.tree.zxid, s.tree.zxid)
	s.tree = st.tree
	s.nextSession = max(st.nextSession, s.nextSession)

	for id, r := range st.sessions {
		s.sessions[id] = &session{sessionRecord: r}
		s.touch(s.sessions[id])
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

		// Take all pending transactions. Those that come in during the sync share the next record.
		record, upto := j.pending, s.tree.zxid
		j.pending, j.spare = j.spare[:0], nil
		var replacement *state
		// A snapshot must end exactly with this record, so copy the state before the lock is
		// released.
		if j.dir.data.size > j.limit {
			replacement = s.snapshot()
		}

		s.mu.Unlock()
		err := j.dir.data.append(record, upto, j.dir.sync)
		s.mu.Lock()
		if err != nil {
			s.fail(err)
			break
		}
		if cap(record) <= maxBacklog {
			j.spare = record
		}

		// The transactions are safe: let followers apply them and connections answer.
		s.durable = upto
		for _, f := range s.followers {
			s.wakeBefore(f.catchUp(time.Since(s.started)))
		}
		s.settled.Broadcast()
		if replacement == nil {
			continue
		}

		s.mu.Unlock()
		err = j.replace(replacement)
		s.mu.Lock()
		if err != nil {
			s.fail(err)
			break
		}
	}

	j.over = true
	s.settled.Broadcast()
}

// replace replaces the data file by a snapshot of the state. Meanwhile other writes wait. If no
// file can be opened now, the data file stays, and has everything.
func (j *journal) replace(st *state) error {
	err := j.dir.store(st)
	if isTooManyFiles(err) && j.dir.data != nil {
		j.srv.log.Warn("too many open files: the data file is not replaced yet", "dir", j.dir.path, "error", err)
		j.limit = j.dir.data.size + j.srv.cfg.logSize
		return nil
	}
	if err == nil {
		j.limit = j.srv.cfg.logSize + 2*j.dir.data.size
	}
	return err
}

// isTooManyFiles reports whether opening a file failed because there are no descriptors left
// (connections may have taken them).
func isTooManyFiles(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// close writes the pending transactions and unlocks the directory. Nothing may be committed after
// that.
func (j *journal) close() {
	j.srv.mu.Lock()
	j.closing = true
	j.work.Signal()
	j.srv.mu.Unlock()

	j.writer.Wait()
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
