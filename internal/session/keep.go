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
// write. Meanwhile the session sends requests at the same pace because carried is only as recent
// as they are close. A quorum that takes almost T/4 for each write loses nothing even if it begins
// to without notice.
//
// Progress of a long request or reply is a sign of life, too (zk.Conn gives it 2/3 T in all). Just
// before trust runs out, the session is resumed once more if that renews trust: the leader takes
// part in a resumption, so it renews confirmed and carried, though not agreed.
func (s *Session) keep() {
	timer := time.NewTimer(s.Ensemble.Timeout)
	defer timer.Stop()

	var pending proofs     // not answered yet
	var sent time.Time     // when the last proof was sent
	var refused bool       // the latest answer to a proof renewed nothing
	var slow time.Duration // how long an answer can take after slow answers; at first 0
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
		if len(pending) > 0 && pending[0].over != w { // proofs end with their connection
			pending, sent = nil, time.Time{}
		}

		due, write := s.due(now, pending.write())

		// An answer that is late, or renews nothing, must not make keep spin.
		soon := trust.Soon.Of(timeout)
		if refused || sent.After(s.trust.Confirmed()) {
			due = trust.Later(due, sent.Add(soon))
		}

		s.wakes = now.Add(timeout) // engage wakes keep earlier
		s.mu.Unlock()

		// Send a proof if it is due, even if earlier proofs are under way: the reports of contacts
		// must stay as close together as usual.
		if w != nil && engaged && !now.Before(due) {
			pending, sent = append(pending, s.prove(w, now, write)), now
			due = now.Add(soon)
		}

		next := end
		if w != nil && engaged {
			next = trust.Earlier(next, due)
		}

		// Leave a silent server while there is time for another server. If answers have been slow,
		// or the server before was silent too, the quorum is slow, and leaving would only begin the
		// wait again.
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

		// Just before trust runs out, resume once more if that renews it (the leader takes part).
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

			pending, refused = pending[1:], !answered
		case <-s.wake:
		case <-timer.C:
		}
	}
}

// due returns when the next request that renews trust is due while s is engaged, and whether it
// must be a write. While a write is under way, it can be a sync. A contender that has just come
// makes requests itself, so keep waits a moment. The caller holds mu.
func (s *Session) due(now time.Time, writing bool) (at time.Time, write bool) {
	at, write = s.trust.Due(now, writing)
	return trust.Later(at, s.engagedAt.Add(trust.Soon.Of(s.trust.Timeout()))), write
}

// wakeBy makes keep look at the clocks at that time or before it. The caller holds mu.
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

// proofs are the proofs under way, the oldest first. Answers come in that order.
type proofs []proof

// oldest returns a channel that receives whether the oldest proof was answered. It is nil without
// proofs.
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
		// The connection itself passes the answer to host.Answered.
		w.Send(op, path, fields, func(r conn.Reply) { p.answered <- r.By != trust.Member })
	})

	return p
}

// fence returns a write that the quorum votes on and that changes nothing: it deletes a node that
// doesn't exist, below another node that doesn't exist. It needs no permission. (A member that
// checks ACLs by itself finds no ACL there and passes the write on.)
func (s *Session) fence() (op zkwire.Op, path string, fields []byte) {
	return zkwire.OpDelete, s.Chroot + "/" + s.NewOwner().String() + "/x", zkwire.AppendInt32(nil, -1)
}
