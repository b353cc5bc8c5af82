package queue

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// find reads up to n entries that nobody has. If it returns none, there was none at some moment of
// the call (or in a listing if atOnce is not set).
func (c *consumer) find(life context.Context, n int, atOnce bool) ([]*reading, error) {
	if err := c.returner.glance(life); err != nil {
		return nil, err
	}

	c.window.current = false
	began := time.Now()
	for size, asked := n, false; ; {
		c.check()
		block := append(c.begun, c.begin(life, c.window.take(size-len(c.begun)))...)
		c.begun = block[min(size, len(block)):]
		block = block[:len(block)-len(c.begun)]
		if len(block) == 0 {
			look := c.list
			switch {
			// A waiting call is content with a listing. A call that doesn't wait must ask the
			// leader, until there is nothing.
			case c.window.current && !atOnce, asked && c.empty:
				return nil, nil
			case atOnce && (c.window.current || c.empty):
				look, asked = c.lookCloser, true
			}

			if err := look(life); err != nil {
				return nil, err
			}
			continue
		}

		c.absent = c.appear(life) // while the entries are read
		entries, err := c.await(block)
		if err != nil {
			return nil, err
		}

		// The next entries will probably still be there, so we read them ahead (also for callers
		// whose entries are being removed: they call next).
		c.mu.Lock()
		c.ahead = max(n+len(c.taken), min(c.ahead, apart))
		c.mu.Unlock()
		c.begun = append(c.begun, c.begin(life, c.window.take(c.ahead-len(c.begun)))...)
		if len(entries) > 0 {
			c.keep(entries[min(n, len(entries)):])
			return entries[:min(n, len(entries))], nil
		}

		// Others have taken this part of the queue. Soon a listing is faster than to read on.
		size = max(n, min(2*size, apart))
		if c.window.mine <= 0 && time.Since(began) >= 2*c.window.took {
			c.relist()
			began = time.Now()
		}
	}
}

// A readAhead is an entry that is being read.
type readAhead struct {
	found
	done     chan struct{}
	*reading       // valid once done is closed
	err      error // valid once done is closed
}

// begin begins to read entries.
func (c *consumer) begin(life context.Context, block []found) (all []*readAhead) {
	for _, f := range block {
		r := &readAhead{found: f, done: make(chan struct{})}
		read := func(life context.Context, work *recipe.Session) {
			defer close(r.done)
			r.reading, r.err = c.read(life, work, f)
		}
		if !c.session.Go(read) {
			read(life, c.session)
		}
		all = append(all, r)
	}
	return all
}

// keep puts entries that were read (but for which a transaction had no room) before all that are
// read ahead.
func (c *consumer) keep(entries []*reading) {
	done := make(chan struct{})
	close(done)
	var kept []*readAhead
	for _, r := range entries {
		kept = append(kept, &readAhead{r.found, done, r, nil})
	}
	c.begun = append(kept, c.begun...)
}

// await waits until entries are read and returns the entries that still exist.
func (c *consumer) await(block []*readAhead) (there []*reading, err error) {
	gone := 0
	for _, r := range block {
		<-r.done
		switch {
		case errors.Is(r.err, zk.ErrNoNode):
			gone++
		case errors.Is(r.err, zk.ErrNoAuth):
			c.setAside(r.found.Node, r.err)
		case r.err != nil:
			return nil, r.err
		default:
			there = append(there, r.reading)
		}
	}

	if gone > 0 {
		c.lost()
	}

	return there, nil
}

// check drops the listing if its order may be out of date.
func (c *consumer) check() {
	if c.beaten.Swap(false) {
		c.lost()
	}
	fresh := staleAfter
	if c.window.skipped || c.priorities {
		fresh = freshFor
	}
	if c.returned.Swap(false) || c.window.older(fresh) {
		c.relist()
	}
}

// relist drops the listing so that the next find lists the queue.
func (c *consumer) relist() {
	c.window.entries, c.window.current, c.begun = nil, false, nil
	c.ahead /= 2
}

// list lists the queue.
func (c *consumer) list(life context.Context) error {
	if c.window.races() {
		c.appear(life) // so others count this consumer, too
		if err := c.returner.glance(life); err != nil {
			return err
		}
	}

	c.returned.Store(false) // the listing will show what has come back before
	began := time.Now()
	children, _, err := c.children(life, c.session, "")
	if err == nil {
		c.takeOver(children, began)
	}
	return err
}

// lookCloser puts back what must come back, and lists the queue as the leader knows it.
func (c *consumer) lookCloser(life context.Context) error {
	if err := c.session.Sync(life, c.path); err != nil {
		return err
	}
	if err := c.returner.look(life); err != nil {
		return err
	}
	c.window.raced = time.Time{}
	return c.list(life)
}

// lost notes that others were faster. If the race is new, or others have come or gone since, the
// entries are shared anew.
func (c *consumer) lost() {
	w := &c.window
	changed := c.returner.outdated()
	if !w.races() && (changed || len(c.returner.present) > 1) || changed && w.older(0) {
		c.returner.looked = time.Time{}
		c.relist()
	}
	w.raced, w.skipped = time.Now(), true
}

// takeOver makes the beginning of a listing the window.
func (c *consumer) takeOver(children []string, began time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	there := slices.DeleteFunc(slices.Clone(children), c.skips())
	order := c.order(there)
	c.empty = len(order) == 0

	w := &c.window
	races := w.races()
	*w = window{raced: w.raced, latest: w.latest, before: w.latest, behind: w.before, strange: len(children) - len(order)}
	if races {
		order = w.share(order, c.returner.present, c.held.name)
	}
	w.entries = c.entries(there, order[:min(mostListed, len(order))])
	w.current, w.listed, w.took = true, time.Now(), time.Since(began)
	if len(c.aside) > 0 {
		w.next = c.asideUntil
	}
}

// skips returns a function that reports whether an entry is set aside or being taken. The caller
// holds mu.
func (c *consumer) skips() func(node string) bool {
	if !time.Now().Before(c.asideUntil) {
		clear(c.aside)
	}
	return func(node string) bool { return c.taken[node] || c.aside[node] != nil }
}

// deliverable reports whether a listing has an entry that isn't skipped, and when entries that were
// set aside are tried again (zero if there are none).
func (c *consumer) deliverable(children []string) (found bool, next time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	skips := c.skips()
	found = slices.ContainsFunc(children, func(child string) bool {
		_, ok := layout.ParseEntry(child, c.priorities)
		return ok && !skips(child)
	})
	if len(c.aside) > 0 {
		next = c.asideUntil
	}
	return found, next
}

const asideFor = time.Minute

// setAside makes the consumer ignore an entry for up to a minute. It is safe for concurrent use.
func (c *consumer) setAside(node string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	err = fmt.Errorf("entry %s: %w", node, err)
	c.aside[node] = err
	if now := time.Now(); !now.Before(c.asideUntil) {
		c.asideUntil = now.Add(asideFor)
		c.recipe.Logger().Warn("queue has an entry that cannot be delivered, and goes on without it", "path", c.path, "error", err)
	}
}

func (c *consumer) setsAside() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.aside) > 0
}

// nothing returns the error of a call that finds nothing and doesn't wait. The next call tries
// entries that were set aside.
func (c *consumer) nothing() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, reason := range c.aside {
		clear(c.aside)
		return reason
	}
	return ErrEmpty
}

// A window is the rest of a consumer's latest listing, in the order in which the consumer tries the
// entries. If consumers race, each of them begins with other entries, so that they seldom meet.
type window struct {
	entries        []found
	mine, rivals   int // how many of them are for this consumer first, and how many consumers race
	strange        int // children of the queue that are no such entries
	listed         time.Time
	took           time.Duration // how long the listing took
	current        bool          // listed in this call of find
	raced          time.Time     // when others were last faster
	skipped        bool          // some entries were left to others
	next           time.Time     // when entries that were set aside are tried again
	before, behind int32         // latest, as of this listing and the one before
	latest         int32         // number of the last entry that we claimed
}

const (
	mostListed = 4000                   // entries that are kept of a listing
	apart      = 32                     // entries that a consumer takes until the others see it, about
	raceLasts  = time.Second            // after others were faster
	freshFor   = 100 * time.Millisecond // age limit of a listing if others compete, or with priorities
	staleAfter = 250 * time.Millisecond // age limit of any other listing, because entries can have come back
)

func (w *window) races() bool { return time.Since(w.raced) < max(raceLasts, w.worth()) }

// worth returns how long the listing is used at least. Listings of all consumers together should
// cost little.
func (w *window) worth() time.Duration {
	times := 10
	if w.mine > 0 {
		times = max(times, w.rivals)
	}
	return time.Duration(times) * w.took
}

// share returns the order in which the consumer of this name tries the entries, if these consumers
// are present. (The name is empty without a receipt.) If the others are of another library, it
// begins at random.
func (w *window) share(order []uint64, present []string, name string) []uint64 {
	w.skipped = true
	rank, known := slices.BinarySearch(present, name)
	n := len(present)
	if !known {
		n++
	}
	switch {
	case len(order) == 0:
		return nil
	case n < 2:
		w.raced = time.Time{}
		return order[rand.IntN(min(apart, len(order))):]
	case name == "":
		rank = rand.IntN(n)
	}

	// Entries that others have left since an earlier listing come first. If there are many, we
	// begin at a random place, so that we seldom meet.
	older := slices.IndexFunc(order, func(number uint64) bool { return sequenceOf(number) >= w.behind })
	if older < 0 {
		older = len(order)
	}
	if older > n*apart {
		skip := rand.IntN(4) * older / 4
		order, older = order[skip:], older-skip
	}

	turns := make([][]uint64, n+2)
	for i, number := range order {
		turn := 1 + (int(uint32(sequenceOf(number)))+rank)%n
		switch {
		case i < older:
			turn = 0
		case priorityOf(number) != priorityOf(order[0]):
			turn = n + 1
		}
		turns[turn] = append(turns[turn], number)
	}
	w.mine, w.rivals = len(turns[0])+len(turns[1]), n
	return slices.Concat(turns...)
}

// older reports whether the listing is too old.
func (w *window) older(than time.Duration) bool {
	return time.Since(w.listed) > max(than, w.worth()) || !w.next.IsZero() && !time.Now().Before(w.next)
}

// take takes the next n entries.
func (w *window) take(n int) []found {
	block := w.entries[:max(0, min(n, len(w.entries)))]
	w.entries = w.entries[len(block):]
	w.mine -= len(block)
	return block
}
