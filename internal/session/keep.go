package session

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/conn"
	"github.com/zkrecipes/zkrecipes/internal/trust"
	"github.com/zkrecipes/zkrecipes/internal/zkwire"
)

// keep runs until the session ends. While the session holds a lease (or a call needs one), keep
// renews trust: it sends a proof whenever no other request has renewed it in time.
//
// Syncs are T/8 apart because three of them take 3/8 T: T/3 for the report of a contact, and T/24
// for its answer. So carried is never older than T/2, and with writes T/2 apart neither is agreed.
// At the worst moment 5/12 T of trust is left. A blip must leave time to connect and to write
// within that. If the quorum stops agreeing while the leader still answers, that is all the time
// that is left.
//
// After an answer took longer than T/24, and after a resumption, requests are twice as close for
// T/2. (A resumption is followed by a write at once if the last write was T/4 ago.) A write comes
// earlier by the time that the last write took. If a sync makes the leader certain to know about a
// newer contact while carried lags far behind, it is sent then.
//
// A waiting contender needs no trust, so its session sends only pings, T/3 apart. If its server
// falls silent, the session is resumed at another server after 2/3 T. If less than T/4 of trust is
// left at the contender's turn, a quorum confirms the session first. The leader may then know about
// a contact 2/3 T ago, which leaves T/4. No request makes a follower report sooner, so trust has
// its usual length T/3 later.
//
// If no answer comes within T/6, the session cuts the connection and tries another server, with T/4
// left to come back. If the next server takes as long, the quorum is slow, and reconnecting only
// begins the wait again. So the limit doubles with each cut and stays at twice the time of the last
// write. Meanwhile the session sends requests at the same pace, because carried is only as recent
// as they are close. A quorum that takes almost T/4 for each write loses nothing, even if it begins
// to without notice.
//
// Progress of a long request or reply is a sign of life, too (zk.Conn gives it 2/3 T in all). Just
// before trust runs out, the session is resumed once more if that renews trust: the leader takes
// part in a resumption, so it renews confirmed and carried, though not agreed.
func (s *Session) keep() {
	timer := time.NewTimer(s.Ensemble.Timeout)
	defer timer.Stop()

	var pending proofs     // not answered yet
	var sent time.Time     // when the last one was
	var slow time.Duration // how long an answer may take, if that is longer than usual
	for s.Err() == nil {
		if s.Conn.Ended() {
			host{s}.Gone(conn.ErrUserClosed)
			return
		}
		now, w := time.Now(), s.Conn.Link()
		s.mu.Lock()
		timeout := s.trust.Timeout()
		engaged, holds := s.engaged > 0, len(s.holders) > 0
		end := now.Add(timeout)
		switch {
		case holds:
			end = s.trust.Deadline()
		case s.releasing > 0:
			end = s.trust.SilentAt()
		}
		renewable := s.trust.Renewable()
		if len(pending) > 0 && pending[0].over != w { // they have ended with their connection
			pending, sent = nil, time.Time{}
		}
		due, write := s.due(now, pending.write())

		// An answer that is late, or renews nothing, must not make keep spin.
		soon := trust.Soon.Of(timeout)
		if sent.After(s.trust.Confirmed()) {
			due = trust.Later(due, sent.Add(soon))
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
			next = trust.Earlier(next, due)
		}

		// A silent server has to be left while there is time for another one. If the server before
		// was left for the same reason, or answers have been slow, the quorum is slow. Leaving
		// would then only begin the wait anew.
		usual := trust.Silence.Of(timeout)
		if len(pending) > 0 {
			limit := trust.Later(pending[0].at, w.Progressed()).Add(max(usual, slow))
			if now.Before(limit) {
				next = trust.Earlier(next, limit)
			} else {
				slow = min(2*max(usual, slow), timeout)
				w.Cut(fmt.Errorf("no answer from the leader for %v", now.Sub(pending[0].at).Round(time.Millisecond)))
			}
		}

		// A resumption may renew trust that is about to run out, as the leader takes part in it.
		if w != nil && holds && renewable {
			last := trust.Later(end.Add(-trust.Last.Of(timeout)), w.Dialled().Add(usual))
			if now.Before(last) {
				next = trust.Earlier(next, last)
			} else {
				w.Cut(errors.New("trust is about to run out"))
			}
		}

		next = trust.Later(next, now.Add(time.Millisecond))
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
func (s *Session) due(now time.Time, writing bool) (at time.Time, write bool) {
	at, write = s.trust.Due(now, writing)
	return trust.Later(at, s.engagedAt.Add(trust.Soon.Of(s.trust.Timeout()))), write
}

// wakeBy makes keep look at the clocks at that time, at the latest. The caller holds mu.
func (s *Session) wakeBy(at time.Time) {
	if s.wakes.After(at) {
		s.poke()
	}
}

// poke makes keep look at the session again.
func (s *Session) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// A proof is a request under way that renews trust.
type proof struct {
	over     *conn.Link
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
func (s *Session) prove(w *conn.Link, now time.Time, write bool) proof {
	p := proof{w, now, write, make(chan bool, 1)}
	op, path, fields := zkwire.OpSync, s.Path("/"), []byte(nil)
	if write {
		op, path, fields = s.fence()
	}
	s.Ensemble.Spawn(func() {
		// The connection notes what the answer proves.
		w.Send(op, path, fields, func(r conn.Reply) { p.answered <- r.By != trust.Member })
	})
	return p
}

// fence is a write that the quorum votes on and that changes nothing: the delete of a node that
// does not exist, below another one that does not. No permission is needed for that, and a member
// that checks ACLs by itself finds none to check, and passes it on.
func (s *Session) fence() (op zkwire.Op, path string, fields []byte) {
	return zkwire.OpDelete, s.Chroot + "/" + s.NewOwner().String() + "/x", zkwire.AppendInt32(nil, -1)
}
