package embedded

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkwire"
)

// A session outlives its connections until it is closed or its timeout runs out.
type session struct {
	sessionRecord
	conn    *conn         // nil while the client is away
	expires time.Duration // since the server's start; a multiple of its tick
}

// newSession starts a session. That is a transaction, so it consumes a zxid.
func (s *Server) newSession(timeout time.Duration) *session {
	ss := &session{sessionRecord: sessionRecord{id: s.nextSession, timeout: timeout}}
	s.nextSession++
	binary.LittleEndian.PutUint64(ss.password[:8], rand.Uint64())
	binary.LittleEndian.PutUint64(ss.password[8:], rand.Uint64())

	s.commit(transaction{began: &ss.sessionRecord})
	s.sessions[ss.id] = ss
	s.touch(ss)
	return ss
}

// touch restarts a session's timeout. Sessions end at a tick of the server's clock (like a real
// server's): never early, and up to a tick late.
func (s *Server) touch(ss *session) {
	tick := s.cfg.TickTime
	timeout := time.Duration(float64(ss.timeout) / s.clockRate)
	ss.expires = ((time.Since(s.started)+timeout)/tick + 1) * tick
	s.wakeBefore(ss.expires)
}

// SetClockRate makes the server's clock run faster or slower than its clients' clocks, but only for
// timeouts of sessions that begin after the call. The default rate is 1. It must be positive.
func (s *Server) SetClockRate(rate float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clockRate = rate
}

// expire ends a session whose timeout has run out, and its connection.
func (s *Server) expire(ss *session) {
	s.log.Debug("session expired", "session", ss.id)
	s.endSession(ss, true)
}

// endSession ends a session and deletes its nodes. If cut is true it also ends the session's
// connection. If the record of all that is too large, the server ends instead.
func (s *Server) endSession(ss *session, cut bool) {
	changes := s.tree.deletions(ss.id)
	// A real server's record has the number of paths, and each path with its length.
	size := 4
	for _, ch := range changes {
		size += 4 + len(ch.path)
	}
	if size > s.cfg.MaxCloseSession {
		s.fail(fmt.Errorf("the end of session %#x takes a record of %d bytes, for %d ephemeral nodes, and a server can read %d",
			ss.id, size, len(changes), s.cfg.MaxCloseSession))
		return
	}

	delete(s.sessions, ss.id)
	x := transaction{changes: changes, ended: &ss.sessionRecord}
	if cut {
		// A client keeps its connection until its own server has applied the end of the session.
		x.cut = func(t *tree) {
			if ss.conn != nil && ss.conn.tree == t {
				s.drop(ss.conn)
			}
		}
	}
	s.commit(x)
}

// reap deletes the nodes that are due, each in its own transaction. If a parent becomes due by
// this, it's deleted the next time.
func (s *Server) reap() {
	for _, path := range s.tree.due(time.Now().UnixMilli()) {
		s.commit(transaction{changes: []change{{op: zkwire.OpDelete, path: path}}})
	}
}

// never is the due time when there is nothing to do.
const never = time.Duration(1<<63 - 1)

// wakeBefore makes housekeep run at due at the latest.
func (s *Server) wakeBefore(due time.Duration) {
	if due >= s.due {
		return
	}

	s.due = due
	select {
	case s.wake <- struct{}{}:
	default: // a wake-up is already pending
	}
}

// housekeep expires sessions, deletes due nodes and lets followers catch up, each when it is due.
// If nothing is due it has no timer. (In a testing/synctest bubble any timer, even one set for the
// end of time, would hide a deadlock.)
func (s *Server) housekeep() {
	timer := time.NewTimer(never)
	defer timer.Stop()
	timer.Stop()

	for {
		select {
		case <-s.done:
			return
		case <-s.wake:
		case <-timer.C:
		}

		s.mu.Lock()
		s.housekeepOnce()
		if s.due == never {
			timer.Stop()
		} else {
			timer.Reset(max(s.due-time.Since(s.started), 1)) // see "Virtual time" in package recipestest
		}
		s.mu.Unlock()
	}
}

// housekeepOnce does the work that is due and sets the time of the next run.
func (s *Server) housekeepOnce() {
	s.due = never
	if s.stopped {
		return // neither sessions nor nodes age in a stopped server
	}

	now := time.Since(s.started)

	// Followers come first: a report that is due now saves its sessions.
	for _, f := range s.followers {
		s.due = min(s.due, f.catchUp(now), f.report(now))
	}

	// Expired sessions end in the order of their IDs, because a map has none.
	var expired []*session
	for _, ss := range s.sessions {
		if ss.expires <= now {
			expired = append(expired, ss)
		} else {
			s.due = min(s.due, ss.expires)
		}
	}

	sortSessions(expired)
	for _, ss := range expired {
		s.expire(ss)
	}

	// Containers and TTL nodes.
	if s.reapAt <= now {
		s.reap()
		s.reapAt = never
	}

	s.scheduleReaping()
	s.due = min(s.due, s.reapAt)
}

// scheduleReaping sets the time of the next reap, if there is a container or TTL node. The times
// are multiples of the interval since the server's start.
func (s *Server) scheduleReaping() {
	if len(s.tree.reapable) == 0 || s.reapAt != never {
		return
	}

	interval := s.cfg.ContainerInterval
	s.reapAt = (time.Since(s.started)/interval + 1) * interval
}
