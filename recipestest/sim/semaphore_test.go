package sim_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/line"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/recipestest/sim"
	"github.com/zkrecipes/zkrecipes/semaphore"
)

// acquirer is one way to get a permit.
type acquirer func(ctx context.Context, try bool) (permit, error)

type permit interface {
	sim.Grant
	Release(context.Context) error
}

func TestSimSemaphore(t *testing.T) {
	sim.Run(t, permits(func(c *protocol.Client, path string, permits int) acquirer {
		s := semaphore.New(c, path, permits)
		return func(ctx context.Context, try bool) (permit, error) {
			if try {
				return s.TryAcquire(ctx)
			}
			return s.Acquire(ctx)
		}
	}))
}

// permits has the goroutines of some clients take permits again and again.
func permits(newSemaphore func(*protocol.Client, string, int) acquirer) func(*sim.World) {
	return func(w *sim.World) {
		n := 1 + w.Rand.IntN(3)
		held := w.Permits("the semaphore", n)
		w.Processes(2+w.Rand.IntN(3), func(c *sim.Client) {
			acquire := newSemaphore(c.Client, w.Path, n)
			for range 1 + c.Rand.IntN(3) {
				begins, waits, holds, try := c.Upto(w.Timeout), c.Upto(4*w.Timeout), c.Spell(), c.Rand.IntN(5) == 0
				c.Go(func(ctx context.Context) error {
					for range 2 {
						c.Sleep(ctx, begins)
						if err := takePermit(ctx, c, acquire, held, try, waits, holds); err != nil {
							return err
						}
					}
					return nil
				})
			}
		})
		w.Finally("all permits are had", func(ctx context.Context) error {
			acquire := newSemaphore(w.Alive()[0].Client, w.Path, n)
			var all []permit
			for range n {
				p, err := acquire(ctx, false)
				if err != nil {
					return err
				}
				all = append(all, p)
			}
			for _, p := range all {
				if err := p.Release(ctx); err != nil {
					return err
				}
			}
			return nil
		})
	}
}

// Clients change the number of permits while others wait for them.
func TestSimSemaphoreResized(t *testing.T) {
	sim.Run(t, func(w *sim.World) {
		const most = 3
		held := w.Permits("the semaphore", most)
		path := w.Path
		w.Processes(2+w.Rand.IntN(2), func(c *sim.Client) {
			s := semaphore.New(c.Client, path, 1)
			for range 2 + c.Rand.IntN(2) {
				begins, waits, holds, number := c.Upto(w.Timeout), c.Upto(4*w.Timeout), c.Spell(), 1+c.Rand.IntN(most)
				resizes := c.Rand.IntN(2) == 0
				c.Go(func(ctx context.Context) error {
					for range 2 {
						c.Sleep(ctx, begins)
						wait, cancel := context.WithTimeout(ctx, waits)
						defer cancel()
						if resizes {
							if err := s.Resize(wait, number); err != nil && !errors.Is(err, context.DeadlineExceeded) {
								return fmt.Errorf("resize: %w", err)
							}
						}
						called := time.Now()
						p, err := s.Acquire(wait)
						if errors.Is(err, context.DeadlineExceeded) {
							continue
						} else if err != nil {
							return fmt.Errorf("acquire: %w", err)
						}
						turn := held.Begin(c, called, p)
						turn.Keep(holds)
						if err := turn.End(p.Release(ctx)); err != nil {
							return err
						}
					}
					return nil
				})
			}
		})
		w.Finally("all permits are had", func(ctx context.Context) error {
			s := semaphore.New(w.Alive()[0].Client, path, 1)
			if err := s.Resize(ctx, 2); err != nil {
				return err
			}
			var had []*semaphore.Permit
			for range 2 {
				p, err := s.Acquire(ctx)
				if err != nil {
					return err
				}
				had = append(had, p)
			}
			if _, err := s.TryAcquire(ctx); !errors.Is(err, semaphore.ErrNoPermit) {
				return fmt.Errorf("a third permit: %w", err)
			}
			for _, p := range had {
				if err := p.Release(ctx); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

func takePermit(ctx context.Context, c *sim.Client, acquire acquirer, held *sim.Permits, try bool, waits, holds time.Duration) error {
	wait, cancel := context.WithTimeout(ctx, waits)
	defer cancel()
	called := time.Now()
	p, err := acquire(wait, try)
	if errors.Is(err, semaphore.ErrNoPermit) || errors.Is(err, line.ErrBusy) || errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("semaphore: %w", err)
	}
	turn := held.Begin(c, called, p)
	turn.Keep(holds)
	return turn.End(p.Release(ctx))
}

// Semaphores that judge the line wrongly are found.
func TestSimFindsABrokenSemaphore(t *testing.T) {
	with := func(blockers func(n int) line.Blockers) func(*protocol.Client, string, int) acquirer {
		return func(c *protocol.Client, path string, n int) acquirer {
			l := line.New(recipe.New(c, "semaphore", path), line.Kind{Name: "permit-"})
			return func(ctx context.Context, try bool) (permit, error) {
				return l.Enter(ctx, line.Request{Kind: "permit-", Blockers: blockers(n), Try: try})
			}
		}
	}
	for name, blockers := range map[string]func(n int) line.Blockers{
		"one permit too many": func(n int) line.Blockers { return line.Permits(n + 1) },
		"a gap in the numbers is taken for a release": func(n int) line.Blockers {
			return func(names []line.Name, self int) []line.Name {
				if self < n || names[self-1].Sequence-names[self-n].Sequence > int32(n) {
					return nil
				}
				return names[self-n : self-n+1]
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := sim.Find(t, permits(with(blockers)), sim.WithSeeds(1000))
			require.NotNil(t, f)
			require.ErrorContains(t, f.Err, "hold the semaphore: [")
			t.Log(f)
		})
	}
	t.Run("sound", func(t *testing.T) {
		sim.Run(t, permits(with(line.Permits)))
	})
}
