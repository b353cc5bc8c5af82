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

func lucky(w *sim.World) {
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
}

// Call it TestSimFindsTwoHolders, in a file of yours.
func simFindsTwoHolders(t *testing.T) {
	failure := sim.Find(t, lucky, sim.WithSeeds(20))
	if failure == nil {
		t.Fatal("found nothing")
	}
	var faults []sim.Fault = failure.Enough // the faults that suffice: here, none
	t.Log(failure.Err, faults)

	t.Run("again", func(t *testing.T) {
		if again := sim.Find(t, lucky, sim.WithSeed(failure.Seed)); again == nil {
			t.Error("the same seed finds nothing")
		}
	})
}

// A simulation that is expected to fail, and its replay.
func ExampleFind() {
	_ = simFindsTwoHolders // go test calls it
}
