package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/line"
)

// Between sessions, those who wait at an empty queue stand in line. The first of them watch the queue, and leave the
// line when they have got what they wanted: then the next ones look. So an offer wakes a few, and each of them who
// finds something makes room for another one.
const (
	watchers    = 2
	waitingKind = "wait-"

	guards = 4 // how many of the entries that are reserved are watched
)

// lookout lets the first few in, and as many more as leave. A contender waits for one node only: while that is there, so is
// a session that watches the queue.
func lookout(names []line.Name, self int) []line.Name {
	if self < watchers {
		return nil
	}
	return names[self-watchers : self-watchers+1]
}

// A place is one in that line. The zero place is one that was not asked for yet.
type place struct {
	cancel context.CancelFunc
	fresh  chan struct{} // tells that there may be something
	again  chan struct{} // tells that there was nothing more
	woke   bool          // there was something fresh, and nothing was said since
	failed chan struct{} // closed when it could not be taken, or kept
}

// take stands in line, and then watches, until it is told to leave. If that fails the logger and the
// observer are told, the slow check goes on, and take tries again when it is called again.
func (p *place) take(c *consumer) {
	if p.cancel != nil {
		select {
		case <-p.failed:
			p.cancel()
		default:
			return
		}
	}
	fresh, again, failed := make(chan struct{}, 1), make(chan struct{}, 1), make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	*p = place{cancel: cancel, fresh: fresh, again: again, failed: failed}

	c.session.Go(func(life context.Context) {
		defer context.AfterFunc(life, cancel)()
		began := time.Now()
		if err := c.lookOut(ctx, fresh, again); err != nil && ctx.Err() == nil {
			c.warn("waits without a place in line, and looks for entries from time to time only", err)
			err = fmt.Errorf("in line with others who wait: %w", err)
			c.queue.recipe.Waited(began, c.queue.recipe.Wrap(err))
			close(failed)
		}
	})
}

// lookOut stands in line until ctx ends, and meanwhile tells when there is something fresh.
func (c *consumer) lookOut(ctx context.Context, fresh chan<- struct{}, again <-chan struct{}) error {
	g, err := c.queue.line.Enter(ctx, line.Request{Kind: waitingKind, Blockers: lookout})
	if err != nil {
		return err
	}
	defer c.session.Go(func(life context.Context) { g.Release(life) })
	for {
		if err := c.session.WaitChildren(ctx, c.queue.path, c.interesting); err != nil {
			return err
		}
		fresh <- struct{}{} // it has room for the one that is not answered yet
		select {
		case <-again:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
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
		name, claim := e.name, e.claim
		c.session.Go(func(life context.Context) {
			defer close(g.set)
			g.sight, g.err = c.lookAtClaim(life, name, claim)
		})
	}
}

// lookAtClaim watches the node that reserves an entry. If its name is not known it is looked up, and
// there is [zk.ErrNoNode] if the entry is not reserved any more.
func (c *consumer) lookAtClaim(life context.Context, entry, claim string) (*protocol.Watch, error) {
	if claim == "" {
		children, err := protocol.Do(life, c.session, func(conn *zk.Conn) ([]string, error) {
			children, _, err := conn.Children(c.dir + "/" + entry)
			return children, err
		})
		if err != nil {
			return nil, err
		}
		if len(children) == 0 {
			return nil, zk.ErrNoNode
		}
		claim = children[0]
	}
	w := c.session.Watch(c.queue.path + "/" + entry + "/" + claim)
	_, err := w.Ready(life)
	return w, err
}

func (c *consumer) guarded() []*entry {
	slices.SortFunc(c.head.aside, compare)
	return c.head.aside[:min(guards, len(c.head.aside))]
}

// tripped reports whether the claim on an entry is gone. A claim that cannot be watched is left to the
// slow check.
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
		return errors.Is(g.err, zk.ErrNoNode)
	}
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
		g := e.guard
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
			} else if !errors.Is(g.err, zk.ErrNoNode) {
				return
			}
			c.wake()
		})
	}
}
