package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
)

// find reads up to n entries that nobody has. It returns none only if there were none at some moment
// since the call began, or if none is needed at once.
func (c *consumer) find(life context.Context, n int, atOnce bool) ([]*reading, error) {
	if err := c.returner.glance(life); err != nil {
		return nil, err
	}
	c.check()
	looks := []func(context.Context) error{c.list, c.lookCloser}
	if !atOnce {
		looks = looks[:1]
	} else if c.empty {
		looks = looks[1:]
	}
	for {
		block := append(c.begun, c.begin(c.window.take(n-len(c.begun)))...)
		c.begun = block[min(n, len(block)):]
		block = block[:len(block)-len(c.begun)]
		if len(block) == 0 {
			if len(looks) == 0 {
				return nil, nil
			}
			if err := looks[0](life); err != nil {
				return nil, err
			}
			if looks = looks[1:]; len(looks) == 0 && atOnce && len(c.window.entries) > 0 {
				looks = append(looks, c.lookCloser)
			}
			continue
		}
		entries, err := c.await(block)
		if err != nil {
			return nil, err
		}
		if c.window.distance == 0 { // the next ones will be there
			c.begun = append(c.begun, c.begin(c.window.take(len(block)-len(c.begun)))...)
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
	err      error // likewise
}

// begin begins to read entries.
func (c *consumer) begin(block []found) []*readAhead {
	all := make([]*readAhead, len(block))
	for i, f := range block {
		r := &readAhead{found: f, done: make(chan struct{})}
		all[i] = r
		started := c.session.Go(func(life context.Context, work *protocol.Session) {
			defer close(r.done)
			r.reading, r.err = c.read(life, work, f)
		})
		if !started {
			r.err = protocol.ErrClosed
			close(r.done)
		}
	}
	return all
}

// await returns those of the entries that are there.
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

// check drops the listing if it may not be in order any more.
func (c *consumer) check() {
	fresh := staleAfter
	if c.window.skipped || c.priorities {
		fresh = freshFor
	}
	if c.returned.Swap(false) || c.window.older(fresh) {
		c.relist()
	}
}

// relist makes the consumer list the queue before it goes on.
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

// lookCloser lists the queue as it is now, by the leader's word, with what has to come back.
func (c *consumer) lookCloser(life context.Context) error {
	if err := c.session.Sync(life, c.path); err != nil {
		return err
	}
	if err := c.returner.look(life, c.session); err != nil {
		return err
	}
	distance := c.window.distance
	c.window.distance = 0
	defer func() { c.window.distance = distance }()
	return c.list(life)
}

// takeOver takes over a listing, without the entries that are left aside.
func (c *consumer) takeOver(children []string, took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now, next := time.Now(), time.Time{}
	for node, until := range c.aside {
		if !now.Before(until) {
			delete(c.aside, node)
		} else if next.IsZero() || until.Before(next) {
			next = until
		}
	}
	c.begun = nil
	c.window.fill(c.entries(children), took, func(f found) bool {
		_, aside := c.aside[f.Node]
		return aside
	})
	c.window.next, c.empty = next, len(c.window.entries) == 0
}

const asideFor = time.Minute

// setAside makes the consumer leave an entry alone for a while. It is safe for concurrent use.
func (c *consumer) setAside(node string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reason = fmt.Errorf("entry %s: %w", node, err)
	c.aside[node] = time.Now().Add(asideFor)
	if time.Since(c.warned) > asideFor {
		c.warned = time.Now()
		c.recipe.Logger().Warn("queue has an entry that cannot be delivered, and goes on without it", "path", c.path, "error", c.reason)
	}
}

// nothing returns the error of a call that does not wait, where there is nothing for it. What was
// left aside is tried again by the next one.
func (c *consumer) nothing() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.aside) > 0 && c.reason != nil {
		clear(c.aside)
		return c.reason
	}
	return ErrEmpty
}
