package queue

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol/line"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// Consumers that wait at an empty queue stand in a line (one node for each session). The first
// consumer watches the queue and gets the next entry. Then it goes to the end of the line. The
// second and the third are its deputies: if there is something to do for a while, and nobody does
// it, they take over. So neither a dead consumer nor a slow one stops the others. If the queue is
// long, all of them leave the line.
var takeOverAfter = [...]time.Duration{0, 100 * time.Millisecond, 900 * time.Millisecond}

// waitForEntries waits until there may be entries for the pending requests.
func (c *consumer) waitForEntries(life context.Context) {
	err := c.stand(life)
	if err == nil || life.Err() != nil {
		return
	}

	pause := firstPause // if the queue was deleted
	if !errors.Is(err, zk.ErrNoNode) {
		pause = c.session.Timeout() / 3
		c.recipe.Logger().Warn("queue waits without a place in line, and looks for entries from time to time only",
			"path", c.path, "error", err)
	}

	c.spot.leave()
	if errors.Is(err, zk.ErrNoAuth) {
		// This client has no rights here, so waiting is in vain.
		if reason := c.nothing(); reason != ErrEmpty {
			c.requests.Answer(reason, c.requests.Pending()...)
			return
		}
	}

	select {
	case <-time.After(pause):
	case <-c.requests.Woken():
	case <-life.Done():
	}
}

// stand waits in line until there may be entries, or requests have come or gone.
func (c *consumer) stand(ctx context.Context) error {
	for {
		self, line, err := c.spot.stand(ctx, len(takeOverAfter))
		if err != nil {
			return err
		}
		if err := c.watch(ctx, self, line); err != errMoved {
			return err
		}
	}
}

var errMoved = errors.New("the line has moved")

// watch waits until a consumer with this place in line has something to do, or requests have come
// or gone. If the line moves first, it returns errMoved.
func (c *consumer) watch(ctx context.Context, self int, line []*recipe.Watch) error {
	if self >= len(takeOverAfter) {
		_, err := c.sleep(ctx, line, nil, time.Time{})
		return err
	}

	// A long queue has something for everybody, and its listing isn't needed to know that.
	stat, err := c.session.Exists(ctx, c.path)
	if err == nil && stat != nil && int(stat.NumChildren) > c.window.strange+apart {
		c.spot.leave()
		return nil
	}

	late := false // a deputy has left those ahead their time
	for {
		began := time.Now()
		entries := c.session.WatchChildren(c.path)
		if stat, err := entries.Ready(ctx); err != nil || stat == nil {
			return cmp.Or(err, zk.ErrNoNode)
		}

		found, next := c.deliverable(entries.Children())
		watches, due := c.returner.watch()
		if next.IsZero() || !due.IsZero() && due.Before(next) {
			next = due
		}

		acts := self == 0 || late
		late = false
		switch {
		case !found && (next.IsZero() || next.After(time.Now())):
			if again, err := c.sleep(ctx, line, append(watches, entries), next); !again {
				return err
			}
		// The next round needs no listing of its own.
		case acts && found:
			c.relist()
			c.takeOver(entries.Children(), began)
			return nil
		case acts:
			if err := c.returner.look(ctx); err != nil {
				return err
			}
		default:
			// Those ahead come first. If they have done it meanwhile, the next listing shows
			// nothing.
			if again, err := c.sleep(ctx, line, nil, time.Now().Add(takeOverAfter[self])); !again {
				return err
			}
			late = true
		}
	}
}

// sleep waits until the line has moved, a watch has fired, requests have come or gone, or the time
// until has come (unless it is zero). It reports whether the caller must look again. If the line
// has moved, it returns errMoved.
func (c *consumer) sleep(ctx context.Context, line, watches []*recipe.Watch, until time.Time) (again bool, err error) {
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	if !until.IsZero() {
		defer time.AfterFunc(time.Until(until), cancel).Stop()
	}

	for _, w := range line {
		w.AfterChange(waiting, cancel)
	}
	for _, w := range watches {
		c.session.Go(func(context.Context, *recipe.Session) {
			w.Wait(waiting)
			cancel()
		})
	}

	select {
	case <-c.requests.Woken():
		return false, nil
	case <-waiting.Done():
	}

	if slices.ContainsFunc(line, hasChanged) {
		return false, errMoved
	}
	return ctx.Err() == nil, ctx.Err()
}

// A spot is the place of a session in a line of waiters. It decides only who comes first, so it
// holds nothing and needs no trust.
type spot struct {
	session *recipe.Session
	dir     string // of the line, without the chroot
	kind    string // in the names of the nodes
	own     *recipe.Own
}

// leave leaves the line.
func (s *spot) leave() {
	if own := s.own; own != nil {
		s.own = nil
		s.session.Go(func(life context.Context, _ *recipe.Session) { own.Withdraw(life) })
	}
}

// yield leaves the line if others are behind. It costs one read, because nobody tells a waiter who
// has come since.
func (s *spot) yield(ctx context.Context) {
	if s.own == nil {
		return
	}
	if waiting, self, err := s.list(ctx); err == nil && self < len(waiting)-1 {
		s.leave()
	}
}

// list returns the line, and the place of the own node in it (-1 if another client has deleted it).
func (s *spot) list(ctx context.Context) (waiting []line.Name, self int, err error) {
	children, _, err := s.session.Children(ctx, s.dir)
	if err := ignore(err, zk.ErrNoNode); err != nil {
		return nil, 0, err
	}
	if !s.own.Among(children) {
		return nil, -1, nil
	}

	for _, child := range children {
		if n, ok := line.ParseName(child, s.kind); ok {
			waiting = append(waiting, n)
		}
	}
	slices.SortFunc(waiting, line.Name.Compare)
	return waiting, slices.IndexFunc(waiting, func(n line.Name) bool { return n.Node == s.own.Name() }), nil
}

// stand enters the line if necessary. It returns how many nodes are ahead, and watches on its own
// node and on the nodes just ahead (up to most of them). When one of these nodes is deleted, the
// line has moved.
func (s *spot) stand(ctx context.Context, most int) (ahead int, watches []*recipe.Watch, err error) {
	for {
		if s.own == nil {
			s.own, err = s.session.CreateOwn(ctx, recipe.OwnNode{Dir: s.dir, Prefix: s.session.NewOwner().String() + "-" + s.kind})
			if err != nil {
				return 0, nil, err
			}
		}

		var waiting []line.Name
		waiting, ahead, err = s.list(ctx)
		if err != nil {
			return 0, nil, err
		} else if ahead < 0 {
			s.own = nil
			continue
		}

		watches = nil
		for _, n := range waiting[max(0, ahead-most) : ahead+1] {
			w := s.session.Watch(s.dir + "/" + n.Node)
			if _, err = w.Ready(ctx); err != nil {
				break
			}
			watches = append(watches, w)
		}

		// If a node went meanwhile, the line is read again.
		if !errors.Is(err, zk.ErrNoNode) {
			return ahead, watches, err
		}
	}
}
