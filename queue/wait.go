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

// Consumers that wait at an empty queue enter a line, one for each session. The first of them watch
// the queue, and leave the line when their callers have got what they wanted. Then the next in line
// look at the queue. So an offer wakes a few consumers, and each that finds an entry makes room for
// another one.
const (
	watchers    = 2
	waitingKind = "wait-"

	watchedClaims = 4 // how many of the entries that are reserved are watched
)

// beforeWatcher returns the contender that must leave before names[self] may watch the queue. While
// that one is in line, so is a session that watches.
func beforeWatcher(names []line.Name, self int) []line.Name {
	if self < watchers {
		return nil
	}
	return names[self-watchers : self-watchers+1]
}

// A slot is a consumer's place in that line. The zero slot has not been asked for yet.
type slot struct {
	cancel  context.CancelFunc
	entries chan struct{} // receives when there may be entries
	again   chan struct{} // is sent to when there were no more
	woken   bool          // entries has been received from, and again was not sent to since
	failed  chan struct{} // closed when the slot could not be had, or kept
}

// enter enters the line, and then watches the queue until leave is called. If that fails the logger
// and the observer are told, and the consumer looks for entries from time to time only. The next
// call of enter tries again.
func (s *slot) enter(c *consumer) {
	if s.cancel != nil {
		select {
		case <-s.failed:
			s.cancel()
		default:
			return
		}
	}

	entries, again, failed := make(chan struct{}, 1), make(chan struct{}, 1), make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	*s = slot{cancel: cancel, entries: entries, again: again, failed: failed}
	c.session.Go(func(life context.Context) {
		defer context.AfterFunc(life, cancel)()
		began := time.Now()
		if err := c.watch(ctx, entries, again); err != nil && ctx.Err() == nil {
			c.warn("waits without a place in line, and looks for entries from time to time only", err)
			err = fmt.Errorf("wait in line: %w", err)
			c.queue.recipe.Waited(began, c.queue.recipe.Wrap(err))
			close(failed)
		}
	})
}

func (s *slot) leave() {
	if s.cancel != nil {
		s.cancel()
	}
}

// watch enters the line, and sends to entries whenever there may be some, until ctx ends.
func (c *consumer) watch(ctx context.Context, entries chan<- struct{}, again <-chan struct{}) error {
	g, err := c.queue.line.Enter(ctx, line.Request{Kind: waitingKind, Blockers: beforeWatcher})
	if err != nil {
		return err
	}
	defer c.session.Go(func(life context.Context) { g.Release(life) })

	for {
		if err := c.session.WaitChildren(ctx, c.queue.path, c.anyAvailable); err != nil {
			return err
		}

		entries <- struct{}{} // it has room for the one that is not answered yet
		select {
		case <-again:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// anyAvailable reports whether there are entries that are not known to be reserved.
func (c *consumer) anyAvailable(children []string) bool {
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

// waitForEntries waits until there may be something for the pending requests.
func (c *consumer) waitForEntries(life context.Context, s *slot) {
	s.enter(c)
	if s.woken {
		s.woken = false
		s.again <- struct{}{}
	}

	ctx, cancel := context.WithCancel(life)
	defer cancel()
	c.wakeOnRelease(ctx)

	timer := time.NewTimer(c.recheckAfter())
	defer timer.Stop()
	select {
	case <-s.entries:
		s.woken = true
	case <-c.removals.Woken():
	case <-timer.C:
	case <-life.Done():
	}
}

// A claimWatch watches the claim on an entry, which is free once that is gone.
type claimWatch struct {
	set  chan struct{} // closed once there is a watch, or an error
	node *protocol.Watch
	err  error
}

// setClaimWatches watches the claims on the first of the reserved entries.
func (c *consumer) setClaimWatches() {
	for _, e := range c.firstReserved() {
		if e.watch != nil {
			continue
		}

		w := &claimWatch{set: make(chan struct{})}
		e.watch = w
		name, claim := e.name, e.claim
		c.session.Go(func(life context.Context) {
			defer close(w.set)
			w.node, w.err = c.watchClaim(life, name, claim)
		})
	}
}

// watchClaim watches the node that reserves an entry. If its name is not known it is looked up. If
// the entry is not reserved any more, watchClaim returns [zk.ErrNoNode].
func (c *consumer) watchClaim(life context.Context, entry, claim string) (*protocol.Watch, error) {
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

// firstReserved returns the reserved entries whose claims are watched.
func (c *consumer) firstReserved() []*entry {
	slices.SortFunc(c.window.reserved, compare)
	return c.window.reserved[:min(watchedClaims, len(c.window.reserved))]
}

// released reports whether the claim on an entry is known to be gone. Claims that cannot be watched
// are read from time to time.
func (e *entry) released() bool {
	w := e.watch
	if w == nil {
		return false
	}

	select {
	case <-w.set:
	default:
		return false
	}
	if w.err != nil {
		return errors.Is(w.err, zk.ErrNoNode)
	}

	select {
	case <-w.node.Changed():
		return true
	default:
		return false
	}
}

// wakeOnRelease wakes the consumer when one of the first reserved entries becomes free, until ctx
// ends.
func (c *consumer) wakeOnRelease(ctx context.Context) {
	c.setClaimWatches()
	for _, e := range c.firstReserved() {
		w := e.watch
		c.session.Go(func(context.Context) {
			select {
			case <-w.set:
			case <-ctx.Done():
				return
			}

			if w.err == nil {
				select {
				case <-w.node.Changed():
				case <-ctx.Done():
					return
				}
			} else if !errors.Is(w.err, zk.ErrNoNode) {
				return
			}
			c.removals.Wake()
		})
	}
}
