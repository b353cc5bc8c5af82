package sim_test

import (
	"context"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/recipestest/sim"
	"github.com/zkrecipes/zkrecipes/rwlock"
)

// Call it TestSimCatalogue, in a file of yours.
func simCatalogue(t *testing.T) {
	sim.Run(t, func(w *sim.World) {
		catalogue := w.Shared("the catalogue")
		for i, c := range w.Clients(3) {
			m := rwlock.New(c.Client, w.Path)
			acquire, writes := m.RLock, i == 0
			if writes {
				acquire = m.Lock
			}
			c.Go(func(ctx context.Context) error {
				called := time.Now()
				lease, err := acquire(ctx)
				if err != nil {
					return err
				}
				turn := catalogue.Begin(c, called, lease, writes)
				turn.Keep(c.Upto(w.Timeout))
				return turn.End(lease.Unlock(ctx))
			})
		}
	})
}

// A lock with one writer and two readers.
func ExampleShared() {
	_ = simCatalogue // go test calls it
}
