package queue

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// Consumers that wait at an empty queue stand in a line, one for each session. The first one watches
// the queue, and has the next entry. Then it goes to the end of the line. The second one and the
// third are its deputies: each takes over if something is to be done and was not done for a while.
// So neither one that has died nor one that is far away stops the others.
var takeOverAfter = [...]time.Duration{0, 100 * time.Millisecond, 900 * time.Millisecond}

// waitForEntries waits until there may be something for the pending requests.
func (c *consumer) waitForEntries(life context.Context) {
	ctx, cancel := context.WithCancel(life)
	defer cancel()
	err := c.stand(ctx)
	if err == nil || life.Err() != nil {
		return
	}
	pause := firstPause // the queue was deleted
	if !errors.Is(err, zk.ErrNoNode) {
		pause = c.session.Timeout() / 3
		c.recipe.Logger().Warn("queue waits without a place in line, and looks for entries from time to time only",
			"path", c.path, "error", err)
	}
	c.spot.leave()
	if errors.Is(err, zk.ErrNoAuth) {
		if reason := c.nothing(); reason != ErrEmpty { // this client may do nothing here
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

// stand stands in line until there may be something.
func (c *consumer) stand(ctx context.Context) error {
	for {
		self, line, err := c.spot.stand(ctx, len(takeOverAfter)-1)
		if err != nil {
			return err
		}
		if over, err := c.watch(ctx, self, line); over || err != nil {
			return err
		}
	}
}

// watch waits for what concerns a consumer with this place in line. It reports whether there may be
// entries, or requests have come or gone. Otherwise the line has changed.
func (c *consumer) watch(ctx context.Context, self int, line []*recipe.Watch) (over bool, err error) {
	if self >= len(takeOverAfter) {
		_, over, err := c.sleep(ctx, line, nil, 0)
		return over, err
	}
	var since time.Time // when there was something to do first
	for {
		now := time.Now()
		entries := c.session.WatchChildren(c.path)
		if stat, err := entries.Ready(ctx); err != nil || stat == nil {
			return true, cmp.Or(err, zk.ErrNoNode)
		}
		c.takeOver(entries.Children(), time.Since(now))
		n, due := len(c.window.entries), c.window.next
		c.relist()
		watches, comesBack, err := c.returner.watch(ctx)
		if err != nil {
			return true, err
		}
		now = time.Now()
		if n > 0 {
			due = now
		} else if due.IsZero() || !comesBack.IsZero() && comesBack.Before(due) {
			due = comesBack
		}

		most := time.Duration(0)
		switch {
		case due.IsZero(), due.After(now): // nothing to do yet
			since, watches = time.Time{}, append(watches, entries)
			if !due.IsZero() {
				most = due.Sub(now)
			}
		case since.IsZero() && self > 0:
			since = now
			fallthrough
		case now.Sub(since) < takeOverAfter[self]: // it is for those ahead
			most, watches = takeOverAfter[self]-now.Sub(since), nil
		case n > 0:
			if n > len(c.requests.Pending()) && c.spot.others { // who need not wait for us
				c.spot.leave()
			}
			return true, nil
		default:
			if err := c.returner.look(ctx, c.session); err != nil {
				return true, err
			}
			continue
		}
		moved, over, err := c.sleep(ctx, line, watches, most)
		if over || moved || err != nil {
			return over, err
		}
		if watches != nil && self > 0 { // it is for the first one to look
			since = time.Now()
			if moved, over, err = c.sleep(ctx, line, nil, takeOverAfter[self]); over || moved || err != nil {
				return over, err
			}
		}
	}
}

// sleep waits until the line has moved, something has changed, requests have come or gone, or that
// much time has passed, if it is not 0.
func (c *consumer) sleep(ctx context.Context, line, watches []*recipe.Watch, most time.Duration) (moved, over bool, err error) {
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	if most > 0 {
		defer time.AfterFunc(most, cancel).Stop()
	}
	changed := make(chan bool, 1+len(watches))
	await := func(moved bool, change func(context.Context) error) {
		c.session.Go(func(context.Context, *recipe.Session) {
			if change(waiting) == nil {
				changed <- moved
			}
		})
	}
	await(true, func(ctx context.Context) error { return c.session.WaitAny(ctx, line...) })
	for _, w := range watches {
		await(false, w.Wait)
	}
	select {
	case moved = <-changed:
	case <-c.requests.Woken():
		over = true
	case <-waiting.Done():
		over, err = ctx.Err() != nil, ctx.Err()
	}
	return moved, over, err
}
