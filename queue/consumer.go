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

// A removal is the request of a Take, a Poll, a PollN or a reservation. They all get claims.
type removal struct {
	batch.Request
	max     int  // number of entries
	wait    bool // until there is an entry
	reserve bool // the caller counts attempts

	claims []*claim
}

// A consumer reserves entries under one session for all callers in this process. These callers
// never compete among themselves and share transactions. If callers take entries as fast as the
// network carries them, the consumer reserves some entries ahead.
type consumer struct {
	*settler
	presence presence
	held     *directory // of the presence
	returner returner
	requests *batch.Batcher[*removal]
	number   int // number of the latest claim

	ahead []*claim // claims that no caller has yet
	// made is when the latest block of claims was made, some is the size of that block, and elapsed
	// is the time that it took.
	made    time.Time
	some    int
	elapsed time.Duration
	size    int // of the next block, for takers

	window window
	begun  []*readAhead          // entries of the next block, which are being read
	known  map[string]*readAhead // begun before the latest listing, by node
	empty  bool                  // the latest listing was empty
	spot   spot                  // the place in the line of waiting consumers

	mu         sync.Mutex       // protects the fields below
	aside      map[string]error // entries that could not be delivered, and why
	asideUntil time.Time        // when they are tried again
}

const (
	mostAhead  = 32
	aheadFor   = 50 * time.Millisecond // how long claims ahead wait for a caller
	claimBytes = 512 << 10             // limit of a transaction with several claims
)

func newConsumer(s *site) *consumer {
	c := &consumer{settler: newSettler(s), size: 1, aside: make(map[string]error), known: make(map[string]*readAhead)}
	c.presence, c.returner.site = presence{site: s, dir: consumersNode}, s
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
			c.forget()
			c.requests.Answer(cmp.Or(c.session.Err(), err), pending...)
		case found:
			c.spot.yield(life)
		default:
			c.sweep()
			// Calls that do not wait end here. The others wait together.
			if atOnce := slices.DeleteFunc(pending, func(r *removal) bool { return r.wait }); len(atOnce) > 0 {
				c.requests.Answer(c.nothing(), atOnce...)
			} else {
				c.waitForEntries(life)
			}
		}
	}
}

// round gives entries to the pending requests and reports whether it found any.
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
	// Claims for takers are no attempts, so a reservation can't have them. An entry that has gone
	// back to its place may come before them.
	if len(c.ahead) > 0 && (counts || c.coming.Load() > 0 || c.returned.Load()) {
		c.putBackAhead()
	}

	if len(c.ahead) > 0 && len(c.ahead) >= min(pending[0].max, mostAhead) {
		c.hand()
		return true, nil
	}

	// Entries that go back to their places must be there before we look.
	for c.coming.Load() > 0 {
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

	// Nothing can be reserved, but deletions work even under a full quota.
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

// handPlainly lets each taker remove an entry itself, because none can be reserved. The other
// entries are for the next callers.
func (c *consumer) handPlainly(takers []*removal, entries []*reading) {
	for _, r := range takers {
		if len(entries) == 0 {
			break
		}
		r.claims = []*claim{{reading: *entries[0]}}
		if left := c.requests.Answer(nil, r); len(left) == 0 {
			entries = entries[1:]
		}
	}
	c.keep(entries)
}

// ration returns the size of the next block for a single taker. It grows while callers take entries
// as fast as the network carries them.
func (c *consumer) ration() int {
	if c.some > 0 && time.Since(c.made) < time.Duration(c.some+2)*c.elapsed {
		c.size = min(2*c.size, mostAhead)
	} else {
		c.size = max(1, c.size/2)
	}
	return c.size
}

// hand gives the claims that nobody has to the pending requests.
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

	// Some callers have left meanwhile, so their claims are for the next ones.
	for _, r := range slices.Backward(c.requests.Answer(nil, given...)) {
		c.ahead = append(slices.Clone(r.claims), c.ahead...)
	}
}

// linger keeps the claims ahead for the next callers. After a moment without callers it puts them
// back. The presence stays a little longer, and as long as there are claims. linger reports whether
// all that is done. If not, a caller has come.
func (c *consumer) linger(life context.Context) (done bool) {
	if len(c.ahead) > 0 || c.spot.own != nil {
		if !c.requests.Idle(life, c.keepsAhead()) {
			return false
		}
		c.putBackAhead()
		c.spot.leave()
	}

	for pause := idlePresence; c.presence.name != ""; {
		if !c.requests.Idle(life, pause) {
			return false
		}
		switch used := c.held != nil && c.held.claims.Load() > 0; {
		case life.Err() != nil:
			return true
		case !used && c.disappear(life) != nil:
			pause = min(2*pause, time.Minute) // a permission is missing, perhaps
		}
	}

	return true
}

func (c *consumer) keepsAhead() time.Duration { return min(max(aheadFor, 4*c.elapsed), 10*aheadFor) }

// putBackAhead puts back the claims that no caller has asked for. The next listing waits for that.
func (c *consumer) putBackAhead() {
	c.letGo(c.ahead...)
	c.ahead, c.size = nil, 1
}

// forget drops the listing and puts back the claims ahead.
func (c *consumer) forget() {
	c.putBackAhead()
	c.relist()
}
