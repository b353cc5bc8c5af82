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
		clients := w.Clients(2 + w.Rand.IntN(4))
		for _, c := range clients {
			m := rwlock.New(c.Client, w.Path)
			c.Go(func(ctx context.Context) error {
				for range 1 + c.Rand.IntN(4) {
					c.Sleep(ctx, c.Upto(w.Timeout/2))
					if err := readOrWrite(ctx, w, c, m, held); err != nil {
						return err
					}
				}
				return nil
			})
		}

		w.Finally("the lock is free", func(ctx context.Context) error {
			l, err := rwlock.New(clients[0].Client, w.Path).Lock(ctx)
			if err != nil {
				return err
			}
			return l.Unlock(ctx)
		})
	})
}

func readOrWrite(ctx context.Context, w *sim.World, c *sim.Client, m *rwlock.RWMutex, held *sim.Shared) error {
	verbs := []func(context.Context) (*rwlock.Lease, error){m.RLock, m.RLock, m.Lock, m.TryRLock, m.TryLock}
	wait, cancel := context.WithTimeout(ctx, c.Upto(4*w.Timeout))
	defer cancel()

	called := time.Now()
	l, err := verbs[c.Rand.IntN(len(verbs))](wait)
	if errors.Is(err, rwlock.ErrLocked) || errors.Is(err, context.DeadlineExceeded) {
		return nil
	}

	if err != nil {
		return fmt.Errorf("lock: %w", err)
	}

	turn := held.Begin(c, called, l, l.Exclusive())
	turn.Keep(c.Spell())
	if !l.Exclusive() || c.Rand.IntN(2) == 0 {
		return turn.End(l.Unlock(ctx))
	}

	called = time.Now()
	reading, err := l.Downgrade(ctx)
	if err = turn.End(err); err != nil || reading == nil {
		return err
	}

	turn = held.Begin(c, called, reading, false)
	turn.Keep(c.Spell())
	return turn.End(reading.Unlock(ctx))
}
