package sim_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/recipestest/sim"
	"github.com/zkrecipes/zkrecipes/rwlock"
)

func TestSimRWMutex(t *testing.T) {
	sim.Run(t, func(w *sim.World) {
		held := w.Shared("the lock")
		w.Processes(2+w.Rand.IntN(4), func(c *sim.Client) {
			m := rwlock.New(c.Client, w.Path)
			plan := lockVisits(w, c)
			c.Go(func(ctx context.Context) error { return readAndWrite(ctx, c, m, held, plan) })
		})

		w.Finally("the lock is free", func(ctx context.Context) error {
			l, err := rwlock.New(w.Alive()[0].Client, w.Path).Lock(ctx)
			if err != nil {
				return err
			}
			return l.Unlock(ctx)
		})
	})
}

// Goroutines of one client share the node that they read with.
func TestSimRWMutexShared(t *testing.T) {
	sim.Run(t, func(w *sim.World) {
		held := w.Shared("the lock")
		w.Processes(2+w.Rand.IntN(2), func(c *sim.Client) {
			m := rwlock.New(c.Client, w.Path, rwlock.WithLocalSharing())
			for range 3 {
				plan := lockVisits(w, c)
				c.Go(func(ctx context.Context) error { return readAndWrite(ctx, c, m, held, plan) })
			}
		})

		w.Finally("the lock is free", func(ctx context.Context) error {
			l, err := rwlock.New(w.Alive()[0].Client, w.Path).Lock(ctx)
			if err != nil {
				return err
			}
			return l.Unlock(ctx)
		})
	})
}

// A lockVisit is one use of the lock. It is drawn before goroutines that share a client begin.
type lockVisit struct {
	pause, wait  time.Duration // before it, and for the lock
	verb         int
	spell, after time.Duration // how long the lock is held, and held on to read
	downgrade    bool
}

func lockVisits(w *sim.World, c *sim.Client) []lockVisit {
	all := make([]lockVisit, 1+c.Rand.IntN(4))
	for i := range all {
		all[i] = lockVisit{
			pause: c.Upto(w.Timeout / 2), wait: c.Upto(4 * w.Timeout),
			verb:  c.Rand.IntN(5),
			spell: c.Spell(), after: c.Spell(),
			downgrade: c.Rand.IntN(2) == 0,
		}
	}
	return all
}

func readAndWrite(ctx context.Context, c *sim.Client, m *rwlock.RWMutex, held *sim.Shared, plan []lockVisit) error {
	for _, v := range plan {
		c.Sleep(ctx, v.pause)
		if err := readOrWrite(ctx, c, m, held, v); err != nil {
			return err
		}
	}
	return nil
}

func readOrWrite(ctx context.Context, c *sim.Client, m *rwlock.RWMutex, held *sim.Shared, v lockVisit) error {
	verbs := []func(context.Context) (*rwlock.Lease, error){m.RLock, m.RLock, m.Lock, m.TryRLock, m.TryLock}
	wait, cancel := context.WithTimeout(ctx, v.wait)
	defer cancel()

	called := time.Now()
	l, err := verbs[v.verb](wait)
	if errors.Is(err, rwlock.ErrLocked) || errors.Is(err, context.DeadlineExceeded) {
		return nil
	}

	if err != nil {
		return fmt.Errorf("lock: %w", err)
	}

	turn := held.Begin(c, called, l, l.Exclusive())
	turn.Keep(v.spell)
	if !l.Exclusive() || !v.downgrade {
		return turn.End(l.Unlock(ctx))
	}

	called = time.Now()
	reading, err := l.Downgrade(ctx)
	if err = turn.End(err); err != nil || reading == nil {
		return err
	}

	turn = held.Begin(c, called, reading, false)
	turn.Keep(v.after)
	return turn.End(reading.Unlock(ctx))
}
