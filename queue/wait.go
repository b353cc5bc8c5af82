package queue

import (
	"context"
	"slices"
	"time"

	"github.com/zkrecipes/zkrecipes/protocol"
)

// Between sessions, those who wait at an empty queue stand in line. The first of them watch the queue, and leave the
// line when they have got what they wanted: then the next ones look. So an offer wakes a few, and each of them who
// finds something makes room for another one.
const (
	watchers    = 2
	waitingKind = "wait-"

	guards = 4 // how many of the entries that are reserved are watched
)

func lookout(_ []protocol.Name, self int) (ahead int) { return max(self-watchers, -1) }

// A place is one in that line. The zero place is one that was not asked for yet.
type place struct {
	cancel context.CancelFunc
	fresh  chan struct{} // tells that there may be something
	again  chan struct{} // tells that there was nothing more
	woke   bool          // there was something fresh, and nothing was said since
}

// take stands in line, and then watches, until it is told to leave.
func (p *place) take(c *consumer) {
	if p.cancel != nil {
		return
	}
	p.fresh, p.again = make(chan struct{}, 1), make(chan struct{}, 1)
	var ctx context.Context
	ctx, p.cancel = context.WithCancel(context.Background())
	c.session.Go(func(life context.Context) {
		defer context.AfterFunc(life, p.cancel)()
		g, err := c.queue.line.Enter(ctx, protocol.Bid{Kind: waitingKind, Judge: lookout})
		if err != nil {
			return // the slow check goes on
		}
		defer c.session.Go(func(life context.Context) { protocol.Release(life, g) })
		for c.session.UntilBelow(ctx, c.queue.path, c.interesting) == nil {
			p.fresh <- struct{}{} // it has room for the one that is not answered yet
			select {
			case <-p.again:
			case <-ctx.Done():
				return
			}
		}
	})
}

func (p *place) leave() {
	if p.cancel != nil {
		p.cancel()
	}
}

// interesting tells whether there are entries that are not known to be reserved.
func (c *consumer) interesting(children []string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range children {
		if _, ok := parse(name); ok {
			if _, reserved := c.reserved[name]; !reserved {
				return true
			}
		}
	}
	return false
}

// doze waits until there may be something for those who wait.
func (c *consumer) doze(life context.Context, p *place) {
	p.take(c)
	if p.woke {
		p.woke = false
		p.again <- struct{}{}
	}
	ctx, cancel := context.WithCancel(life)
	defer cancel()
	c.watchGuards(ctx)
	timer := time.NewTimer(c.recheck())
	defer timer.Stop()
	select {
	case <-p.fresh:
		p.woke = true
	case <-c.woken:
	case <-timer.C:
	case <-life.Done():
	}
}

// setGuards has the first of the reserved entries guarded.
func (c *consumer) setGuards() {
	for _, e := range c.guarded() {
		if e.guard != nil {
			continue
		}
		g := &guard{set: make(chan struct{})}
		e.guard = g
		node := c.queue.path + "/" + e.name + "/" + claimName
		c.session.Go(func(life context.Context) {
			defer close(g.set)
			g.sight, g.err = c.session.Look(life, node)
		})
	}
}

func (c *consumer) guarded() []*entry {
	slices.SortFunc(c.head.aside, compare)
	return c.head.aside[:min(guards, len(c.head.aside))]
}

// tripped tells whether the claim on an entry is gone. One that was gone before it could be watched is believed once: what
// has other children than ours is not to be had, and is left to the slow check.
func (e *entry) tripped() bool {
	g := e.guard
	if g == nil {
		return false
	}
	select {
	case <-g.set:
	default:
		return false
	}
	if g.err != nil {
		e.misses++
		return e.misses == 1
	}
	e.misses = 0
	select {
	case <-g.sight.Changed():
		return true
	default:
		return false
	}
}

// watchGuards wakes the desk when one of the first entries is not reserved any more.
func (c *consumer) watchGuards(ctx context.Context) {
	c.setGuards()
	for _, e := range c.guarded() {
		g, missed := e.guard, e.misses > 0
		c.session.Go(func(context.Context) {
			select {
			case <-g.set:
			case <-ctx.Done():
				return
			}
			if g.err == nil {
				select {
				case <-g.sight.Changed():
				case <-ctx.Done():
					return
				}
			} else if missed {
				return
			}
			c.wake()
		})
	}
}
