package sim_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/zkrecipes/zkrecipes/recipestest/sim"
	"github.com/zkrecipes/zkrecipes/semaphore"
)

func TestSimSemaphore(t *testing.T) {
	sim.Run(t, func(w *sim.World) {
		n := 1 + w.Rand.IntN(3)
		held := w.Permits("the semaphore", n)
		contend(w, 2+w.Rand.IntN(3), func(c *sim.Client) (int, func(context.Context, visit) error) {
			s := semaphore.New(c.Client, w.Path, n)
			return 1 + c.Rand.IntN(3), func(ctx context.Context, v visit) error {
				acquire := s.Acquire
				if v.chance() {
					acquire = s.TryAcquire
				}
				return hold(ctx, c, v, held.Begin, acquire, (*semaphore.Permit).Release)
			}
		})
		w.Finally("all permits are had", func(ctx context.Context) error {
			return haveAll(ctx, n, semaphore.New(w.Alive()[0].Client, w.Path, n).Acquire)
		})
	})
}

// haveAll has n permits at once.
func haveAll(ctx context.Context, n int, acquire func(context.Context) (*semaphore.Permit, error)) (err error) {
	for range n {
		p, failed := acquire(ctx)
		if failed != nil {
			return failed
		}
		defer func() { err = errors.Join(err, p.Release(ctx)) }()
	}
	return nil
}

// Clients change the number of permits while others wait for them.
func TestSimSemaphoreResized(t *testing.T) {
	sim.Run(t, func(w *sim.World) {
		const most = 3
		held := w.Permits("the semaphore", most)
		contend(w, 2+w.Rand.IntN(2), func(c *sim.Client) (int, func(context.Context, visit) error) {
			s := semaphore.New(c.Client, w.Path, 1)
			return 2 + c.Rand.IntN(2), func(ctx context.Context, v visit) error {
				return hold(ctx, c, v, held.Begin, func(ctx context.Context) (*semaphore.Permit, error) {
					if v.pick%2 == 0 {
						if err := s.Resize(ctx, 1+v.pick/2%most); err != nil {
							return nil, fmt.Errorf("resize: %w", err)
						}
					}
					return s.Acquire(ctx)
				}, (*semaphore.Permit).Release)
			}
		})
		w.Finally("two permits are had after a resize", func(ctx context.Context) error {
			s := semaphore.New(w.Alive()[0].Client, w.Path, 1)
			if err := s.Resize(ctx, 2); err != nil {
				return err
			}
			err := haveAll(ctx, 3, s.TryAcquire)
			if !errors.Is(err, semaphore.ErrNoPermit) {
				return fmt.Errorf("a third permit: %w", err)
			}
			return haveAll(ctx, 2, s.Acquire)
		})
	})
}
