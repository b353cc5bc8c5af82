package sim_test

import (
	"context"
	"errors"
	"testing"

	"github.com/zkrecipes/zkrecipes/barrier"
	"github.com/zkrecipes/zkrecipes/recipestest/sim"
)

// Call it TestSimMigration, in a file of yours.
func simMigration(t *testing.T) {
	sim.Run(t, func(w *sim.World) {
		migration := w.Gate("the migration")
		for i, c := range w.Clients(3) {
			b := barrier.New(c.Client, w.Path)
			c.Go(func(ctx context.Context) error {
				if i > 0 {
					c.Sleep(ctx, c.Upto(w.Timeout))
					return migration.Wait(c, func() error { return b.Wait(ctx) })
				}
				return errors.Join(
					migration.Set(c, func() error { return b.Set(ctx) }),
					migration.Remove(c, func() error { return b.Remove(ctx) }))
			})
		}
	})
}

// A barrier that one process sets and removes, while two wait.
func ExampleGate() {
	_ = simMigration // go test calls it
}
