package sim_test

import (
	"context"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/recipestest/sim"
)

// Call it TestSimWorkers, in a file of yours. Three workers take turns. Under all faults there is
// one at a time, and none is stuck in the end.
func simWorkers(t *testing.T) {
	sim.Run(t, func(w *sim.World) {
		working := w.Exclusive("the job")
		for _, c := range w.Clients(3) {
			m := lock.New(c.Client, w.Path)
			c.Go(func(ctx context.Context) error {
				for range 3 {
					called := time.Now()
					lease, err := m.Lock(ctx)
					if err != nil {
						return err
					}
					turn := working.Begin(c, called, lease)
					for range 10 {
						if !turn.Holds() { // lost: the worker stops
							break
						}
						c.Sleep(ctx, c.Upto(w.Timeout/10))
					}
					if err := turn.End(lease.Unlock(ctx)); err != nil {
						return err
					}
				}
				return nil
			})
		}
	}, sim.WithoutFaults(sim.Deletion)) // no operator deletes their nodes
}

// A lock of which at most one process has a valid lease.
func ExampleExclusive() {
	_ = simWorkers // go test calls it
}
