package embedded

import (
	"encoding/binary"
	"math/rand/v2"
	"time"
)

// passwordSize is the length of the password that comes with a session.
const passwordSize = 16

// A session outlives its connections until it is closed or its timeout runs out.
type session struct {
	id       int64
	password [passwordSize]byte
	conn     *conn // nil while the client is away
	timeout  time.Duration
	expires  time.Duration // since the server's start, a multiple of its tick
}

// newSession starts a session, which is a transaction.
func (s *Server) newSession(timeout time.Duration) *session {
	s.commit(transaction{})
	ss := &session{id: s.nextSession, timeout: timeout}
	s.nextSession++
	binary.LittleEndian.PutUint64(ss.password[:8], rand.Uint64())
	binary.LittleEndian.PutUint64(ss.password[8:], rand.Uint64())
	s.sessions[ss.id] = ss
	s.touch(ss)
	return ss
}

// touch starts a session's timeout anew. Sessions end at a tick of the server's
// clock, as with the real one: never early, up to a tick late.
func (s *Server) touch(ss *session) {
	tick := s.cfg.TickTime
	ss.expires = ((time.Since(s.started)+ss.timeout)/tick + 1) * tick
	s.wakeBefore(ss.expires)
}

// endSession forgets a session, deletes its nodes and leaves its connection alone.
func (s *Server) endSession(ss *session) {
	delete(s.sessions, ss.id)
	s.commit(transaction{changes: s.tree.deletions(ss.id)})
}

// expire ends a session whose client has not been heard for too long.
func (s *Server) expire(ss *session) {
	s.log.Debug("session expired", "session", ss.id)
	delete(s.sessions, ss.id)
	s.commit(transaction{changes: s.tree.deletions(ss.id), expired: ss})
}

// reap deletes the nodes that are due, each in a transaction of its own. Their parents are looked at next time.
func (s *Server) reap() {
	for _, path := range s.tree.due(time.Now().UnixMilli()) {
		s.commit(transaction{changes: []change{{op: opDelete, path: path}}})
	}
}

// never is the due time of housekeeping that has nothing to do.
const never = time.Duration(1<<63 - 1)

// wakeBefore makes sure that the housekeeper runs at the given time at the latest.
func (s *Server) wakeBefore(due time.Duration) {
	if due >= s.due {
		return
	}
	s.due = due
	select {
	case s.wake <- struct{}{}:
	default: // it is about to look anyway
	}
}

// keepHouse expires sessions and reaps containers, each when it is due. While
// there is neither it has no timer: in a bubble of testing/synctest even one set
// for the end of time would keep a deadlock from being found.
func (s *Server) keepHouse() {
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
		s.keepHouseOnce()
		if s.due == never {
			timer.Stop()
		} else {
			timer.Reset(s.due - time.Since(s.started))
		}
		s.mu.Unlock()
	}
}

// keepHouseOnce does what is due now and works out when to come again.
func (s *Server) keepHouseOnce() {
	s.due = never
	if s.stopped {
		return // neither sessions nor nodes age in a stopped server
	}
	now := time.Since(s.started)
	for _, f := range s.followers {
		s.due = min(s.due, f.catchUp(now))
	}
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
	if len(s.tree.reapable) == 0 {
		s.reapAt = never
		return
	}
	if s.reapAt <= now {
		s.reap()
		s.reapAt = never
	}
	s.scheduleReaping()
	s.due = min(s.due, s.reapAt)
}

// scheduleReaping sets the time of the next reaping, if there may be something
// to reap by then: on a grid that started with the server.
func (s *Server) scheduleReaping() {
	if len(s.tree.reapable) == 0 || s.reapAt != never {
		return
	}
	interval := s.cfg.ContainerInterval
	s.reapAt = (time.Since(s.started)/interval + 1) * interval
}
