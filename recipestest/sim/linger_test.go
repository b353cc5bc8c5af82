package sim_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/recipestest/sim"
)

// lingering is a lock that lingers for a time that the seed draws, or for as long as it may.
func lingering(c *sim.Client, w *sim.World) *lock.Mutex {
	d := time.Millisecond + c.Upto(2*w.Timeout)
	if c.Rand.IntN(2) == 0 {
		d = time.Hour
	}
	return lock.New(c.Client, w.Path, lock.WithLinger(d))
}

// soonFree checks that an unused node is given back to a contender. (Only a dead client keeps it,
// until its session ends.)
func soonFree(ctx context.Context, w *sim.World) error {
	began := time.Now()
	err := lock.New(w.Alive()[0].Client, w.Path).Do(ctx, func(context.Context, *lock.Lease) error { return nil })
	if took := time.Since(began); err == nil && took > 3*w.Timeout {
		err = fmt.Errorf("the lock was free after %v", took)
	}
	return err
}

// Goroutines of each client pass a node on, in short turns. Some of the clients keep none.
func TestSimLinger(t *testing.T) {
	sim.Run(t, func(w *sim.World) {
		held := w.Exclusive("the lock").Repeats()
		w.Watches = 8 // a client may linger in the end, and watches the line for a while when it has given back
		w.Processes(1+w.Rand.IntN(3), func(c *sim.Client) {
			m := lingering(c, w)
			if c.Rand.IntN(4) == 0 {
				m = lock.New(c.Client, w.Path)
			}
			for range 1 + c.Rand.IntN(3) {
				begins, turns := c.Upto(w.Timeout), 1+c.Rand.IntN(4)
				type turn struct {
					pause, waits, holds time.Duration
					try                 bool
				}
				plan := make([]turn, turns)
				for i := range plan {
					plan[i] = turn{c.Upto(w.Timeout / 2), c.Upto(6 * w.Timeout), c.Spell() / 4, c.Rand.IntN(5) == 0}
				}
				c.Go(func(ctx context.Context) error {
					c.Sleep(ctx, begins)
					for _, p := range plan {
						if err := lingerTurn(ctx, c, m, held, p.waits, p.holds, p.try); err != nil {
							return err
						}
						c.Sleep(ctx, p.pause)
					}
					return nil
				})
			}
			w.Finally(c.Name+" has the lock", func(ctx context.Context) error {
				if c.Dead() {
					return nil
				}
				return m.Do(ctx, func(context.Context, *lock.Lease) error { return nil })
			})
		})
		w.Finally("the lock is free for one that does not linger", func(ctx context.Context) error { return soonFree(ctx, w) })
	})
}

func lingerTurn(ctx context.Context, c *sim.Client, m *lock.Mutex, held *sim.Exclusive, waits, holds time.Duration, try bool) error {
	wait, cancel := context.WithTimeout(ctx, waits)
	defer cancel()
	acquire := m.Lock
	if try {
		acquire = m.TryLock
	}
	called := time.Now()
	l, err := acquire(wait)
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, lock.ErrLocked) {
		return nil
	} else if err != nil {
		return err
	}
	turn := held.Begin(c, called, l)
	turn.Keep(holds)
	return turn.End(l.Unlock(ctx))
}

// A lock lingers beside contenders of all kinds that a line of locks may have.
func TestSimLingerBesideOthers(t *testing.T) {
	sim.Run(t, func(w *sim.World) {
		held := w.Exclusive("the lock").Repeats()
		w.Watches = 8 // a client may linger in the end, and watches the line for a while when it has given back
		w.Processes(2+w.Rand.IntN(2), func(c *sim.Client) {
			var m locker
			switch c.Rand.IntN(4) {
			case 0:
				m = lock.NewSimple(c.Client, w.Path)
			case 1:
				m = lock.New(c.Client, w.Path, lock.WithLocalQueue())
			default:
				m = lingering(c, w)
			}
			for range 2 {
				pause := c.Upto(w.Timeout)
				plan := []time.Duration{c.Upto(w.Timeout / 2), c.Spell() / 2, c.Upto(w.Timeout / 2), c.Spell() / 2}
				c.Go(func(ctx context.Context) error {
					c.Sleep(ctx, pause)
					for i := 0; i < len(plan); i += 2 {
						c.Sleep(ctx, plan[i])
						wait, cancel := context.WithTimeout(ctx, 6*w.Timeout)
						called := time.Now()
						l, err := m.Lock(wait)
						cancel()
						if errors.Is(err, context.DeadlineExceeded) {
							continue
						} else if err != nil {
							return err
						}
						turn := held.Begin(c, called, l)
						turn.Keep(plan[i+1])
						if err := turn.End(l.Unlock(ctx)); err != nil {
							return err
						}
					}
					return nil
				})
			}
		})
		w.Finally("the lock is free", func(ctx context.Context) error { return soonFree(ctx, w) })
	})
}
