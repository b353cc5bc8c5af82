package queue

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/batch"
	"github.com/zkrecipes/zkrecipes/protocol"
)

// A removal is the request of a Take, a Poll, a PollN or a reservation. All of them get claims.
type removal struct {
	batch.Request
	max     int  // entries
	wait    bool // for entries to come
	reserve bool // for a caller that counts attempts

	claims []*claim
	plain  []*reading // instead, where none can be reserved
}

// A consumer reserves entries under one session, for all callers in this process. These never
// compete among themselves, and share transactions. One whose callers take entries as fast as the
// network carries them reserves some ahead.
type consumer struct {
	*settler
	returner returner
	requests *batch.Batcher[*removal]
	number   int // of the latest claim

	ahead   []*claim      // that nobody has yet
	made    time.Time     // when the last ones were
	some    int           // how many
	elapsed time.Duration // for them
	size    int           // how many to make at once for takers

	window window
	begun  []*readAhead // a block that is being read already
	empty  bool         // the latest listing was
	spot   spot         // in the line of those that wait

	mu     sync.Mutex           // protects what follows
	aside  map[string]time.Time // entries that could not be delivered, and until when they are left alone
	reason error                // the last one
	warned time.Time            // when the logger got one
}

const (
	mostAhead  = 32
	aheadFor   = 50 * time.Millisecond // what is ahead stays so long without a caller
	claimBytes = 512 << 10             // of a transaction with several claims
)

func newConsumer(s *site) *consumer {
	c := &consumer{settler: newSettler(s), size: 1, aside: make(map[string]time.Time)}
	c.returner.site, c.returner.lock = s, newGate()
	c.spot = spot{session: s.session, dir: s.path + waitingNode, kind: "wait-"}
	c.requests = batch.New(s, s.limits(), c.serve, func(_ *removal, cause error) error { return cause })
	return c
}

// unsure returns err for entries of which it is not known whether they were removed.
func unsure(claims []*claim, err error) error {
	u := &UncertainError{Err: err}
	for _, cl := range claims {
		u.IDs, u.Data = append(u.IDs, cl.record.ID), append(u.Data, cl.data)
	}
	return u
}

// ask blocks until there are claims for r, or not.
func (c *consumer) ask(ctx context.Context, r *removal) (*removal, error) {
	return r, c.requests.Do(ctx, r)
}

// serve gives the pending requests what there is, again and again, and waits when the queue is
// empty.
func (c *consumer) serve(life context.Context) {
	defer c.presence.rest()
	defer c.spot.leave()
	for pending := range c.requests.Rounds() {
		found, err := c.round(life, pending)
		switch {
		case err != nil:
			c.forget()
			c.requests.Answer(cmp.Or(c.session.Err(), err), pending...)
		case found:
			if c.spot.others {
				c.spot.leave()
			}
		default:
			if atOnce := slices.DeleteFunc(pending, func(r *removal) bool { return r.wait }); len(atOnce) > 0 {
				c.requests.Answer(c.nothing(), atOnce...)
			} else {
				c.waitForEntries(life)
			}
		}
		c.linger(life)
	}
}

// round gives the pending requests what there is, and reports whether there was anything.
func (c *consumer) round(life context.Context, pending []*removal) (found bool, err error) {
	need, atOnce := 0, false
	var takers []*removal
	for _, r := range pending {
		need += r.max
		atOnce = atOnce || !r.wait
		if !r.reserve {
			takers = append(takers, r)
		}
	}
	counts := len(takers) < len(pending)
	if late := time.Duration(c.some+4) * c.keepsAhead(); len(c.ahead) > 0 && (counts || time.Since(c.made) > late) {
		c.putBackAhead()
	}
	if len(c.ahead) > 0 && len(c.ahead) >= min(pending[0].max, mostAhead) {
		c.hand()
		return true, nil
	}

	for c.coming.Load() > 0 { // to a place before those to be found
		select {
		case <-c.came:
		case <-life.Done():
			return false, c.session.Err()
		}
	}
	if !counts && !c.priorities && len(c.ahead) == 0 {
		need += c.ration() - 1
	}
	began, before := time.Now(), len(c.ahead)
	entries, err := c.find(life, min(need, maxOps)-before, atOnce && before == 0)
	if err == nil && len(entries) > 0 {
		err = c.reserve(life, entries, counts)
		c.made, c.some, c.elapsed = time.Now(), len(c.ahead)-before, time.Since(began)
	}
	if len(takers) > 0 && (errors.Is(err, protocol.ErrQuotaExceeded) || errors.Is(err, protocol.ErrTooLarge)) {
		c.requests.Answer(err, slices.DeleteFunc(pending, func(r *removal) bool { return !r.reserve })...)
		c.putBackAhead()
		c.handPlainly(takers, entries)
		return true, nil
	} else if err != nil {
		return false, err
	}
	c.hand()
	return before+len(entries) > 0, nil
}

// handPlainly lets takers remove entries themselves, as none can be reserved.
func (c *consumer) handPlainly(takers []*removal, entries []*reading) {
	for _, r := range takers {
		if len(entries) == 0 {
			return
		}
		n := 1
		for size := 0; n < min(r.max, len(entries)); n++ {
			if size += protocol.MultiSize(c.removal(c.session, entries[n])...); size > c.limits().Bytes {
				break
			}
		}
		r.plain, entries = entries[:n], entries[n:]
		c.requests.Answer(nil, r)
	}
}

// ration returns how many claims to make at once for a single taker. It is more if the last ones
// went as fast as the network carries them.
func (c *consumer) ration() int {
	if c.some > 0 && time.Since(c.made) < time.Duration(c.some+2)*c.elapsed {
		c.size = min(2*c.size, mostAhead)
	} else {
		c.size = max(1, c.size/2)
	}
	return c.size
}

// hand gives the pending requests the claims that there are.
func (c *consumer) hand() {
	given := c.requests.Collect(func(r *removal, room *batch.Room) bool {
		n := min(r.max, len(c.ahead))
		if n == 0 || r.reserve && !c.ahead[0].counts {
			return room.Skip()
		}
		r.claims = slices.Clone(c.ahead[:n])
		c.ahead = c.ahead[n:]
		return true
	})
	for _, r := range slices.Backward(c.requests.Answer(nil, given...)) { // whose callers have left
		c.ahead = append(slices.Clone(r.claims), c.ahead...)
	}
}

// linger keeps what is ahead for the next callers, for a moment, and puts it back.
func (c *consumer) linger(life context.Context) {
	if len(c.ahead) == 0 && c.spot.own == nil {
		return
	}
	kept, cancel := context.WithTimeout(life, c.keepsAhead())
	defer cancel()
	for len(c.requests.Pending()) == 0 {
		select {
		case <-c.requests.Woken():
		case <-kept.Done():
			c.putBackAhead()
			c.spot.leave()
			return
		}
	}
}

func (c *consumer) keepsAhead() time.Duration { return min(max(aheadFor, 4*c.elapsed), 10*aheadFor) }

// putBackAhead puts back what nobody has asked for. The next listing waits for that.
func (c *consumer) putBackAhead() {
	c.letGo(c.ahead...)
	c.ahead, c.size = nil, 1
}

// forget drops what was read, and lets go what is ahead.
func (c *consumer) forget() {
	c.putBackAhead()
	c.relist()
}
