package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/protocol"
)

// exclusiveLock shows lock.Mutex: workers line up for one lock, and one of them loses it while it
// works.
func exclusiveLock(ctx context.Context, t *tour) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	l := &lockChapter{
		tour:    t,
		path:    t.root + "/lock",
		victim:  (t.workers - 1) / 2,
		allHere: make(chan struct{}),
		holding: make(chan struct{}),
	}

	l.mutex = lock.New(t.guide, l.path)

	t.say("  %d workers, each with a session of its own, want one lock. They get it in order of\n"+
		"  arrival, and each of them sleeps until its predecessor is gone.\n", t.workers)
	var working sync.WaitGroup
	err := l.lineUp(ctx, func(i int, c *protocol.Client) {
		working.Go(func() {
			err := l.work(ctx, i, c)
			c.Close()
			if err != nil {
				cancel(fmt.Errorf("%s: %w", name(i), err)) // the first one counts
			}
		})
	})
	if err == nil {
		t.say("\n  All are here. Each works for %d ms and gives the lock back; one loses it first.\n",
			t.pace.Milliseconds())
		close(l.allHere)
	} else {
		cancel(err)
	}

	working.Wait()
	if err := context.Cause(ctx); err != nil {
		return err
	}

	first, last := l.grants[0], l.grants[len(l.grants)-1]
	t.say("\n  Every holder had a greater fencing token than those before, %d to %d.\n"+
		"  A store that refuses tokens smaller than the largest it has seen is safe from %s,\n"+
		"  even if that worker writes before it notices the loss.",
		first.token, last.token, name(l.victim))

	return nil
}

type lockChapter struct {
	*tour
	path    string
	mutex   *lock.Mutex   // the guide's
	victim  int           // the worker that is to lose the lock
	allHere chan struct{} // closed when all are in line
	holding chan struct{} // closed when the first worker has the lock

	mu      sync.Mutex // guards what follows
	grants  []grant    // so far
	vacated time.Time  // when the lock was last given back or taken away
}

type grant struct {
	worker int
	token  int64
}

func name(worker int) string { return fmt.Sprintf("worker %d", worker+1) }

// lineUp makes the workers join the line one after the other, and returns when all are in it.
func (l *lockChapter) lineUp(ctx context.Context, start func(int, *protocol.Client)) error {
	for i := range l.workers {
		c, err := l.connect(ctx)
		if err != nil {
			return err
		}

		start(i, c)
		if i == 0 { // it has no predecessor
			select {
			case <-l.holding:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			continue
		}

		before, err := l.predecessor(ctx, name(i))
		if err != nil {
			return err
		}

		l.tell(name(i), "waits in line", "behind "+before)
		if err := sleep(ctx, l.pace/4); err != nil {
			return err
		}
	}

	return nil
}

// predecessor waits until a worker is in line, and returns the name of the one it waits for.
func (l *lockChapter) predecessor(ctx context.Context, worker string) (string, error) {
	for {
		line, err := l.mutex.Contenders(ctx)
		if err != nil {
			return "", err
		}
		for i, c := range line {
			if i > 0 && string(c.Data) == worker {
				return string(line[i-1].Data), nil
			}
		}
		if err := sleep(ctx, 5*time.Millisecond); err != nil {
			return "", err
		}
	}
}

// work is what a worker does with its client.
func (l *lockChapter) work(ctx context.Context, i int, c *protocol.Client) error {
	mutex := lock.New(c, l.path, lock.WithData([]byte(name(i))))
	err := mutex.Do(ctx, func(held context.Context, lease *lock.Lease) error {
		if err := l.granted(i, lease.Token()); err != nil {
			return err
		}

		select {
		case <-l.allHere:
		case <-held.Done():
			return context.Cause(held)
		}

		if err := sleep(held, l.pace); err != nil {
			return err
		}

		if i == l.victim {
			if err := l.strike(ctx, c, name(i), lease); err != nil {
				return err
			}
			return l.stop(ctx, held, name(i))
		}

		l.vacate()
		l.tell(name(i), "gives it back")
		return nil
	})

	if errors.Is(err, errStopped) {
		return nil
	}

	return err
}

// granted records a holder, and fails if that breaks a promise.
func (l *lockChapter) granted(worker int, token int64) error {
	l.mu.Lock()
	n, vacated := len(l.grants), l.vacated
	wrong := n != worker || n > 0 && l.grants[n-1].token >= token
	l.grants = append(l.grants, grant{worker, token})
	l.mu.Unlock()
	if wrong {
		return fmt.Errorf("holder number %d, token %d, after %v", n+1, token, l.grants[:n])
	}

	more := fmt.Sprintf("token %d", token)
	if n > 0 {
		more += fmt.Sprintf(", %.1f ms later", float64(time.Since(vacated))/float64(time.Millisecond))
	}

	l.tell(name(worker), "gets the lock", more)
	if n == 0 {
		close(l.holding)
	}

	return nil
}

// vacate records when the lock becomes free.
func (l *lockChapter) vacate() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.vacated = time.Now()
}

// strike takes the lock away from a working holder.
func (l *lockChapter) strike(ctx context.Context, c *protocol.Client, holder string, lease *lock.Lease) error {
	if l.embedded == nil {
		// We may not end sessions of a real ensemble. Its operators break a lock like this.
		l.tell("an operator", "breaks the lock", "of "+holder+", by deleting its node")
		l.vacate()
		return l.mutex.Break(ctx, lease.Node())
	}

	s, err := c.Session(ctx)
	if err != nil {
		return err
	}

	l.tell("ZooKeeper", "ends a session", "that of "+holder+", as if it had crashed")
	l.vacate()
	l.embedded.ExpireSession(s.ID())
	return nil
}

// errStopped is the error of a holder that was told to stop.
var errStopped = errors.New("stopped")

// stop waits until a holder learns that its lock is lost.
func (l *lockChapter) stop(ctx, held context.Context, holder string) error {
	<-held.Done()
	cause := context.Cause(held)
	if ctx.Err() != nil || !errors.Is(cause, protocol.ErrLost) {
		return cause
	}
	l.tell(holder, "is told to stop", "its context is cancelled, and the cause is", cause.Error())
	return errStopped
}
