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
		contend(w, 2+w.Rand.IntN(4), func(c *sim.Client) (int, func(context.Context, visit) error) {
			b, setter := barrier.New(c.Client, w.Path), c.Name == "client 1"
			return 1, func(ctx context.Context, v visit) (err error) {
				bound, cancel := context.WithTimeout(ctx, v.wait)
				defer cancel()
				switch {
				case !setter:
					err = gate.Wait(c, func() error { return b.Wait(bound) })
				case v.pick%2 == 0:
					err = gate.Set(c, func() error { return b.Set(bound) })
				default:
					err = gate.Remove(c, func() error { return b.Remove(bound) })
				}
				if errors.Is(err, context.DeadlineExceeded) {
					return nil
				}
				return err
			}
		})

		w.Finally("the barrier is removed and passed", func(ctx context.Context) error {
			b := barrier.New(w.Alive()[0].Client, w.Path)
			return errors.Join(b.Remove(ctx), b.Wait(ctx))
		})
	}, truthfulSyncs)
}
