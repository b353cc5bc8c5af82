package protocol

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"
)

// keep watches the clocks until the session is over. While something is held, or a call
// has engaged the session, it makes requests that renew trust unless other requests do so.
func (s *session) keep() {
	timer := time.NewTimer(s.client.timeout)
	defer timer.Stop()

	var pending proofs     // not answered yet
	var sent time.Time     // when the last one was
	var slow time.Duration // how long an answer may take, if that is longer than usual
	for s.Err() == nil {
		now := time.Now()
		s.mu.Lock()
		timeout, w := s.trust.timeout, s.wire
		engaged, holds := s.engaged > 0, len(s.grants) > 0
		end := s.trust.contact.Add(timeout)
		if holds {
			end = s.trust.deadline()
		}
		renewable := s.trust.renewable()
		if len(pending) > 0 && pending[0].over != w { // they have ended with their connection
			pending, sent = nil, time.Time{}
		}
		due, write := s.due(now, pending.write())

		// An answer that is late, or renews nothing, must not make keep spin.
		soon := share(timeout, trouble*syncShare)
		if sent.After(s.trust.confirmed) {
			due = later(due, sent.Add(soon))
		}
		s.wakes = now.Add(timeout) // engage wakes keep earlier
		s.mu.Unlock()

		if w != nil && engaged && !now.Before(due) {
			// Earlier ones may be under way. So reports of contacts are as close together as usual.
			pending, sent = append(pending, s.prove(w, now, write)), now
			due = now.Add(soon)
		}

		next := end
		if w != nil && engaged {
			next = earlier(next, due)
		}

		// A silent server has to be left while there is time for another one. If the server before
		// was left for the same reason, or answers have been slow, the quorum is slow. Leaving
		// would then only begin the wait anew.
		usual := share(timeout, silenceShare)
		if len(pending) > 0 {
			limit := later(pending[0].at, w.progressed()).Add(max(usual, slow))
			if now.Before(limit) {
				next = earlier(next, limit)
			} else {
				slow = min(2*max(usual, slow), timeout)
				w.cut(fmt.Errorf("no answer from the leader for %v", now.Sub(pending[0].at).Round(time.Millisecond)))
			}
		}

		// A resumption may renew trust that is about to run out, as the leader takes part in it.
		if w != nil && holds && renewable {
			last := later(end.Add(-share(timeout, lastShare)), w.dialled.Add(usual))
			if now.Before(last) {
				next = earlier(next, last)
			} else {
				w.cut(errors.New("trust is about to run out"))
			}
		}

		next = later(next, now.Add(time.Millisecond))
		s.mu.Lock()
		s.wakes = next
		s.mu.Unlock()
		timer.Reset(next.Sub(now))

		select {
		case <-s.Done():
		case answered := <-pending.oldest():
			// A sync may be fast where a write is slow.
			if took := time.Since(pending[0].at); answered && (pending[0].write || 2*took > slow) {
				slow = 2 * took
			}
			pending = pending[1:]
		case <-s.wake:
		case <-timer.C:
		}
	}
}

// due returns when the next request that renews trust is due while s is engaged, and whether it
// must be a write. While a write is under way it need not be one. A contender that has just come
// makes requests itself. The caller holds mu.
func (s *session) due(now time.Time, writing bool) (at time.Time, write bool) {
	at, write = s.trust.due(now, writing)
	return later(at, s.engagedAt.Add(share(s.trust.timeout, trouble*syncShare))), write
}

// wakeBy makes keep look at the clocks at that time, at the latest. The caller holds mu.
func (s *session) wakeBy(at time.Time) {
	if s.wakes.After(at) {
		s.poke()
	}
}

// poke makes keep look at the session again.
func (s *session) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// replacesPing reports whether no ping is needed over a connection, on which a request was last
// sent at this moment and the oldest one without an answer, if any, at that. While something is
// held, keep sends requests more often than zk.Conn sends pings.
func (s *session) replacesPing(last time.Time, unanswered []sentRequest) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	late := len(unanswered) > 0 && time.Since(unanswered[0].at) > share(s.trust.timeout, promptShare)
	return len(s.grants) > 0 && !late && time.Since(last) < share(s.trust.timeout, silenceShare)
}

// A proof is a request under way that renews trust.
type proof struct {
	over     *connection
	at       time.Time
	write    bool
	answered chan bool // receives whether there was an answer
}

// proofs are oldest first. They are answered in that order.
type proofs []proof

// oldest returns a channel that receives whether the oldest proof was answered. It is nil if there
// is none.
func (ps proofs) oldest() <-chan bool {
	if len(ps) == 0 {
		return nil
	}
	return ps[0].answered
}

// write reports whether one of the proofs is a write.
func (ps proofs) write() bool {
	return slices.ContainsFunc(ps, func(p proof) bool { return p.write })
}

// prove sends a sync or a write over w, in the background.
func (s *session) prove(w *connection, now time.Time, write bool) proof {
	p := proof{w, now, write, make(chan bool, 1)}
	s.client.spawn(func() {
		// The connection notes that there is an answer. What the answer says does not matter.
		var err error
		if write {
			err = s.writeNothing(s.conn)
		} else {
			_, err = s.conn.Sync(s.Path("/"))
		}
		p.answered <- outcomeOf(err) == definite
	})
	return p
}

// writeNothing deletes a node that does not exist. The quorum votes on that as on any other
// transaction.
func (s *session) writeNothing(c *zk.Conn) error {
	return c.Delete(s.client.chroot+"/"+s.newOwner().String(), -1)
}
