package sim_test

import (
	"context"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/recipestest/sim"
	"github.com/zkrecipes/zkrecipes/semaphore"
)

// Call it TestSimImports, in a file of yours.
func simImports(t *testing.T) {
	sim.Run(t, func(w *sim.World) {
		importing := w.Permits("imports", 2)
		for _, c := range w.Clients(4) {
			s := semaphore.New(c.Client, w.Path, 2)
			c.Go(func(ctx context.Context) error {
				called := time.Now()
				permit, err := s.Acquire(ctx)
				if err != nil {
					return err
				}
				turn := importing.Begin(c, called, permit)
				turn.Keep(c.Upto(w.Timeout))
				return turn.End(permit.Release(ctx))
			})
		}
	}, sim.WithFaults(sim.Cut, sim.Stall, sim.Expiry))
}

// A semaphore that lets two in at a time, and three faults.
func ExamplePermits() {
	_ = simImports // go test calls it
}
