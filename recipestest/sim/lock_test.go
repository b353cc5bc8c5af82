package sim_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest/sim"
)

// locker is what a Mutex and a Simple have in common.
type locker interface {
	Lock(context.Context) (*lock.Lease, error)
	TryLock(context.Context) (*lock.Lease, error)
}

func TestSimMutex(t *testing.T) {
	sim.Run(t, contend(func(c *protocol.Client, path string) locker { return lock.New(c, path) }))
}

func TestSimSimple(t *testing.T) {
	sim.Run(t, contend(func(c *protocol.Client, path string) locker { return lock.NewSimple(c, path) }))
}

// The goroutines of each client share a local queue.
func TestSimLocalQueue(t *testing.T) {
	sim.Run(t, func(w *sim.World) {
		held := w.Exclusive("the lock")
		w.Processes(1+w.Rand.IntN(3), func(c *sim.Client) {
			m := lock.New(c.Client, w.Path, lock.WithLocalQueue())
			for range 1 + c.Rand.IntN(4) {
				begins, waits, holds := c.Upto(w.Timeout), c.Upto(6*w.Timeout), c.Spell()
				c.Go(func(ctx context.Context) error {
					c.Sleep(ctx, begins)
					wait, cancel := context.WithTimeout(ctx, waits)
					defer cancel()

					called := time.Now()
					l, err := m.Lock(wait)
					if errors.Is(err, context.DeadlineExceeded) {
						return nil
					} else if err != nil {
						return err
					}

					turn := held.Begin(c, called, l)
					turn.Keep(holds)
					return turn.End(l.Unlock(ctx))
				})
			}
			w.Finally(c.Name+" has the lock", func(ctx context.Context) error {
				if c.Dead() {
					return nil
				}
				return m.Do(ctx, func(context.Context, *lock.Lease) error { return nil })
			})
		})
	})
}

// Clients hold several locks at once, and take some of them alone. Goroutines of a client share a
// local queue for each lock, or its node.
func TestSimLockAll(t *testing.T) {
	sim.Run(t, func(w *sim.World) {
		names := []string{"/a", "/b", "/c"}
		var held []*sim.Exclusive
		for _, name := range names {
			held = append(held, w.Exclusive("lock "+name).Repeats())
		}
		w.Processes(2+w.Rand.IntN(2), func(c *sim.Client) {
			var locks []*lock.Mutex
			for _, name := range names {
				var opts []lock.Option
				switch c.Rand.IntN(3) {
				case 0:
					opts = append(opts, lock.WithLocalQueue())
				case 1:
					opts = append(opts, lock.WithLinger(time.Millisecond+c.Upto(w.Timeout)))
				}
				locks = append(locks, lock.New(c.Client, w.Path+name, opts...))
			}
			for range 1 + c.Rand.IntN(3) {
				begins, waits, holds := c.Upto(w.Timeout), c.Upto(6*w.Timeout), c.Spell()
				which := c.Rand.Perm(len(names))[:1+c.Rand.IntN(len(names))]
				c.Go(func(ctx context.Context) error {
					c.Sleep(ctx, begins)
					wait, cancel := context.WithTimeout(ctx, waits)
					defer cancel()
					var some []*lock.Mutex
					for _, i := range which {
						some = append(some, locks[i])
					}
					called := time.Now()
					all, err := lock.LockAll(wait, some...)
					if errors.Is(err, context.DeadlineExceeded) {
						return nil
					} else if err != nil {
						return err
					}
					var turns []*sim.Turn
					for n, i := range which {
						turns = append(turns, held[i].Begin(c, called, all.All()[n]))
					}
					turns[0].Keep(holds)
					for _, turn := range turns[1:] {
						turn.Holds()
					}
					err = all.Unlock(ctx)
					for _, turn := range turns {
						if failed := turn.End(err); failed != nil {
							return failed
						}
					}
					return nil
				})
			}
		})
		w.Finally("all locks are free", func(ctx context.Context) error {
			c := w.Alive()[0].Client
			all, err := lock.LockAll(ctx, lock.New(c, w.Path+"/b"), lock.New(c, w.Path+"/c"), lock.New(c, w.Path+"/a"))
			if err != nil {
				return err
			}
			return all.Unlock(ctx)
		})
	})
}

// contend simulates clients that take a lock again and again.
func contend(newLock func(*protocol.Client, string) locker) func(*sim.World) {
	return func(w *sim.World) {
		held := w.Exclusive("the lock")
		w.Processes(2+w.Rand.IntN(3), func(c *sim.Client) {
			m := newLock(c.Client, w.Path)
			c.Go(func(ctx context.Context) error {
				for range 1 + c.Rand.IntN(4) {
					c.Sleep(ctx, c.Upto(w.Timeout/2))
					if err := take(ctx, w, c, m, held); err != nil {
						return err
					}
				}
				return nil
			})
		})

		w.Finally("the lock is free", func(ctx context.Context) error {
			l, err := newLock(w.Alive()[0].Client, w.Path).Lock(ctx)
			if err != nil {
				return err
			}
			return l.Unlock(ctx)
		})
	}
}

func take(ctx context.Context, w *sim.World, c *sim.Client, m locker, held *sim.Exclusive) error {
	acquire := m.Lock
	if c.Rand.IntN(5) == 0 {
		acquire = m.TryLock
	}

	wait, cancel := context.WithTimeout(ctx, c.Upto(4*w.Timeout))
	defer cancel()

	called := time.Now()
	l, err := acquire(wait)
	if errors.Is(err, lock.ErrLocked) || errors.Is(err, context.DeadlineExceeded) {
		return nil
	}

	if err != nil {
		return fmt.Errorf("lock: %w", err)
	}

	turn := held.Begin(c, called, l)
	turn.Keep(c.Spell())
	return turn.End(l.Unlock(ctx))
}
