package sim_test

import (
	"context"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/recipestest/sim"
)

// luck is a lock that grants itself.
type luck struct{ done chan struct{} }

func (luck) Token() int64            { return 0 }
func (luck) Err() error              { return nil }
func (l luck) Done() <-chan struct{} { return l.done }

// Call it TestSimFindsTwoHolders, in a file of yours.
func simFindsTwoHolders(t *testing.T) {
	failure := sim.Find(t, func(w *sim.World) {
		held := w.Exclusive("the lock")
		for _, c := range w.Clients(2) {
			c.Go(func(ctx context.Context) error {
				called := time.Now()
				var lease sim.Grant = luck{make(chan struct{})}
				turn := held.Begin(c, called, lease)
				turn.Keep(w.Timeout)
				return turn.End(nil)
			})
		}
	}, sim.WithSeeds(20))
	if failure == nil {
		t.Fatal("found nothing")
	}
	var faults []sim.Fault = failure.Enough // the faults that suffice: here, none
	t.Log(failure.Seed, failure.Err, faults)
}

// A simulation that is expected to fail. WithSeed plays the seed of a failure again.
func ExampleFind() {
	_, _ = simFindsTwoHolders, sim.WithSeed // go test calls it
}
