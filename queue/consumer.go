package queue

import (
	"cmp"
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/batch"
)

// A removal is the request of a Take, a Poll, a PollN or a reservation. They all get claims.
type removal struct {
	batch.Request
	max     int  // number of entries
	wait    bool // until there is an entry
	reserve bool // an entry is moved to the consumer's directory first

	claims []*claim
}

// A consumer finds entries under one session for all callers in this process. These callers never
// compete among themselves and share transactions.
type consumer struct {
	*settler
	absent   error      // why there is no receipt
	held     *directory // of this consumer
	returner returner
	requests *batch.Batcher[*removal]
	number   int // number of the latest claim

	window window
	begun  []*readAhead // entries that come next, which are being read
	ahead  int          // how many of them there shall be
	empty  bool         // the latest listing was empty
	spot   spot         // the place in the line of waiting consumers

	beaten atomic.Bool // a caller found that others had been faster

	// The mutex of the settler protects these.
	aside      map[string]error // entries that could not be delivered, and why
	asideUntil time.Time        // when they are tried again
}

const idleSpot = 50 * time.Millisecond // how long an unused place in line stays

func newConsumer(s *site) *consumer {
	c := &consumer{settler: newSettler(s), held: new(directory), aside: make(map[string]error)}
	c.returner.site = s
	s.returns = s.longestReturn(s.session)
	s.unswept.Store(true)
	c.spot = spot{session: s.session, dir: s.path + waitingNode, kind: "wait-"}
	c.requests = batch.New(s, s.limits(), c.serve, func(_ *removal, cause error) error { return cause })
	return c
}

// serve gives entries to the pending requests again and again. While the queue is empty, it waits.
func (c *consumer) serve(life context.Context) {
	defer c.spot.leave()
	for pending := range c.requests.Rounds(func() bool { return c.linger(life) }) {
		found, err := c.round(life, pending)
		switch {
		case err != nil:
			c.relist()
			c.requests.Answer(cmp.Or(c.session.Err(), err), pending...)
		case found:
			c.spot.yield(life)
		default:
			c.sweep()
			if c.setsAside() {
				c.spot.yield(life) // others may get what this consumer can't
			}
			// Calls that do not wait end here. The others wait together.
			if atOnce := slices.DeleteFunc(pending, func(r *removal) bool { return r.wait }); len(atOnce) > 0 {
				c.requests.Answer(c.nothing(), atOnce...)
			} else {
				c.waitForEntries(life)
			}
		}
	}
}

// round gives entries to the pending requests that want the same as the first. It reports whether
// it found any.
func (c *consumer) round(life context.Context, pending []*removal) (found bool, err error) {
	need, atOnce, reserve := 0, false, pending[0].reserve
	for _, r := range pending {
		atOnce = atOnce || !r.wait
		if r.reserve == reserve {
			need += r.max
		}
	}

	entries, err := c.find(life, min(need, maxOps), atOnce)
	if err != nil || len(entries) == 0 {
		return false, err
	}

	claim := c.assign
	if reserve {
		claim = c.reserve
	}

	claims, err := claim(life, entries)
	if err != nil {
		c.relist()
		pending = slices.DeleteFunc(pending, func(r *removal) bool { return r.reserve != reserve })
		c.requests.Answer(cmp.Or(c.session.Err(), err), pending...)
		return true, nil
	}

	c.hand(life, reserve, claims)
	return true, nil
}

// hand gives claims to the pending requests that want such claims.
func (c *consumer) hand(life context.Context, reserved bool, claims []*claim) {
	given := c.requests.Collect(func(r *removal, room *batch.Room) bool {
		n := min(r.max, len(claims))
		if n == 0 || r.reserve != reserved {
			return room.Skip()
		}
		r.claims, claims = claims[:n:n], claims[n:]
		return true
	})

	// Some callers have left meanwhile.
	for _, r := range c.requests.Answer(nil, given...) {
		claims = append(claims, r.claims...)
	}
	c.letGo(life, c.session, claims...)
}

// linger keeps the place in line for a moment without callers. It keeps the directory a little
// longer, and as long as there are claims. It reports whether all that is done. If not, a caller
// has come.
func (c *consumer) linger(life context.Context) (done bool) {
	if c.spot.own != nil {
		if !c.requests.Idle(life, min(max(idleSpot, 4*c.window.took), 10*idleSpot)) {
			return false
		}
		c.spot.leave()
	}

	for pause := idleReceipt; c.held.name != ""; {
		if !c.requests.Idle(life, pause) {
			return false
		}
		switch used := c.held.claims.Load() > 0; {
		case life.Err() != nil:
			return true
		case !used && c.disappear(life) != nil:
			pause = min(2*pause, time.Minute) // a permission is missing, perhaps
		}
	}

	return true
}
