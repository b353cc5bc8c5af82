package queue

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// find reads up to n entries that nobody has. If it returns none, there was none at some moment of
// the call (or in a listing if atOnce is not set).
func (c *consumer) find(life context.Context, n int, atOnce bool) ([]*reading, error) {
	if err := c.returner.glance(life); err != nil {
		return nil, err
	}

	c.check()
	for listed, asked := false, false; ; {
		block := append(c.begun, c.begin(life, c.window.take(n-len(c.begun)))...)
		c.begun = block[min(n, len(block)):]
		block = block[:len(block)-len(c.begun)]
		if len(block) == 0 {
			look := c.list
			switch {
			// A waiting call is content with a listing. A call that doesn't wait must ask the
			// leader, until there is nothing.
			case listed && !atOnce, asked && c.empty:
				return nil, nil
			case atOnce && (listed || c.empty):
				look, asked = c.lookCloser, true
			}

			listed = true
			if err := look(life); err != nil {
				return nil, err
			}
			continue
		}

		entries, err := c.await(block)
		if err != nil {
			return nil, err
		}

		// If nobody competes, the next entries will still be there, so we read them ahead.
		if c.window.distance == 0 {
			c.begun = append(c.begun, c.begin(life, c.window.take(len(block)-len(c.begun)))...)
		}

		if len(entries) > 0 {
			return entries, nil
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
		c.window.lost(gone, len(block))
	}

	return there, nil
}

// check drops the listing if its order may be out of date.
func (c *consumer) check() {
	fresh := staleAfter
	if c.window.skipped || c.priorities {
		fresh = freshFor
	}
	if c.returned.Swap(false) || c.window.older(fresh) {
		c.relist()
	}
}

// relist drops the listing so that the next find lists the queue.
func (c *consumer) relist() { c.window.entries, c.begun = nil, nil }

// list lists the queue.
func (c *consumer) list(life context.Context) error {
	began := time.Now()
	children, _, err := c.children(life, c.session, "")
	if err == nil {
		c.takeOver(children, time.Since(began))
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
	distance := c.window.distance
	c.window.distance = 0
	defer func() { c.window.distance = distance }()
	return c.list(life)
}

// takeOver makes a listing the window (without entries that are set aside).
func (c *consumer) takeOver(children []string, took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !time.Now().Before(c.asideUntil) {
		clear(c.aside)
	}

	c.begun = nil
	c.window.fill(slices.DeleteFunc(c.entries(children), func(f found) bool { return c.aside[f.Node] != nil }), took)
	if len(c.aside) > 0 {
		c.window.next = c.asideUntil
	}

	c.empty = len(c.window.entries) == 0
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

// A window is the rest of a consumer's latest listing. Consumers of several sessions compete. If
// others were faster, a consumer goes further back in its listing. Until its next listing it leaves
// the entries that it skips to the others. When it wins, it comes forward again.
type window struct {
	entries  []found
	listed   time.Time
	took     time.Duration // how long the listing took
	skipped  bool          // some entries were left to others
	begins   bool          // nothing was taken yet
	next     time.Time     // when entries that were set aside are tried again
	latest   int32         // number of the last entry that we claimed
	distance int           // how many entries we skip between two blocks
	lucky    int           // number of blocks in a row that we won
	unlucky  time.Time     // when others were last faster
}

const (
	mostDistance = 16                     // in blocks
	freshFor     = 100 * time.Millisecond // age limit of a listing if others compete, or with priorities
	staleAfter   = 250 * time.Millisecond // age limit of any other listing, because entries can have come back
)

// fill makes a listing the window (without entries that are set aside).
func (w *window) fill(entries []found, took time.Duration) {
	now := time.Now()
	w.entries, w.listed, w.took = entries, now, took
	w.begins, w.skipped, w.next = true, false, time.Time{}
	// The others have become slow, so we come forward.
	if now.Sub(w.unlucky) > max(freshFor, 10*took) {
		w.distance /= 4
	}

	// An older entry was skipped or has come back. It comes first.
	if len(w.entries) == 0 || w.entries[0].Sequence < w.latest {
		return
	}

	// The others have the same listing, so each begins somewhere else.
	if w.distance > 0 {
		w.drop(rand.IntN(min(w.distance, len(w.entries))))
	}
}

// drop leaves the first n entries to others.
func (w *window) drop(n int) {
	w.entries, w.skipped = w.entries[n:], w.skipped || n > 0
}

// older reports whether the listing is too old, compared with the time that a listing takes.
func (w *window) older(than time.Duration) bool {
	return time.Since(w.listed) > max(than, 10*w.took) || !w.next.IsZero() && !time.Now().Before(w.next)
}

// take takes the next n entries. It leaves the entries that it skips to others.
func (w *window) take(n int) []found {
	if n <= 0 {
		return nil
	}

	skip := w.distance
	if w.begins {
		skip, w.begins = 0, false
	}

	if len(w.entries) < skip+n {
		skip = rand.IntN(max(1, min(skip, len(w.entries)-n)+1))
	}

	w.drop(min(skip, len(w.entries)))
	block := w.entries[:min(n, len(w.entries))]
	w.entries = w.entries[len(block):]
	return block
}

// lost notes that others were faster with some of n entries.
func (w *window) lost(some, n int) {
	w.distance, w.lucky, w.skipped, w.unlucky = w.distance+some, 0, true, time.Now()
	if some == n {
		w.distance *= 2
	}
	w.distance = min(w.distance, mostDistance*n)
}

// won notes that we got a block, up to the entry last.
func (w *window) won(last found) {
	w.latest = last.Sequence
	if w.lucky++; w.lucky >= 8 {
		w.distance, w.lucky = w.distance*3/4, 0
	}
}
