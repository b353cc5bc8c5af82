package sim_test

import (
	"context"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/doublebarrier"
	"github.com/zkrecipes/zkrecipes/recipestest/sim"
)

// Call it TestSimPhases, in a file of yours.
func simPhases(t *testing.T) {
	sim.Run(t, func(w *sim.World) {
		phases := w.Rounds("the phases", 2)
		for _, c := range w.Clients(2) {
			b := doublebarrier.New(c.Client, w.Path, 2, doublebarrier.WithWaiting())
			c.Go(func(ctx context.Context) error {
				wait, cancel := context.WithTimeout(ctx, 4*w.Timeout)
				defer cancel()
				called := time.Now()
				entry, err := b.Enter(wait)
				if err != nil {
					return nil // the other one has died
				}
				visit := phases.Enter(c, called, entry, entry.Members())
				visit.Keep(c.Upto(w.Timeout))
				return visit.Leave(entry.Leave(ctx))
			})
		}
		w.Watches = 2 // on the gate of a round that was given up
	}, sim.WithoutFaults(sim.Deletion, sim.Uproot)) // when an operator deletes its records, a gate stays until the next round
}

// A double barrier of two.
func ExampleRounds() {
	_ = simPhases // go test calls it
}
