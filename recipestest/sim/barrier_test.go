package sim_test

import (
	"context"
	"errors"
	"testing"

	"github.com/zkrecipes/zkrecipes/barrier"
	"github.com/zkrecipes/zkrecipes/recipestest/sim"
)

func TestSimBarrier(t *testing.T) {
	sim.Run(t, func(w *sim.World) {
		gate := w.Gate("the barrier")
		w.Processes(2+w.Rand.IntN(4), func(c *sim.Client) {
			b, setter := barrier.New(c.Client, w.Path), c.Name == "client 1"
			c.Go(func(ctx context.Context) error {
				for range 1 + c.Rand.IntN(6) {
					c.Sleep(ctx, c.Upto(w.Timeout))
					bound, cancel := context.WithTimeout(ctx, c.Upto(4*w.Timeout))
					defer cancel()
					var err error
					switch kind := c.Rand.IntN(2); {
					case !setter:
						err = gate.Wait(c, func() error { return b.Wait(bound) })
					case kind == 0:
						err = gate.Set(c, func() error { return b.Set(bound) })
					default:
						err = gate.Remove(c, func() error { return b.Remove(bound) })
					}
					if err != nil && !errors.Is(err, context.DeadlineExceeded) {
						return err
					}
				}

				return nil
			})
		})

		w.Finally("the barrier is removed and passed", func(ctx context.Context) error {
			b := barrier.New(w.Alive()[0].Client, w.Path)
			return errors.Join(b.Remove(ctx), b.Wait(ctx))
		})
	}, truthfulSyncs)
}
