package sim_test

import (
	"context"
	"path"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/election"
	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/recipestest/sim"
)

// Clients contend for a lock, several goroutines of each at a time, while an operator looks at the
// line.
func TestSimArrivalsAtAMutex(t *testing.T) {
	sim.Run(t, func(w *sim.World) {
		held := w.Exclusive("the lock")
		contend(w, 2+w.Rand.IntN(3), func(c *sim.Client) (int, func(context.Context, visit) error) {
			m := lock.New(c.Client, w.Path)
			return 1 + c.Rand.IntN(3), func(ctx context.Context, v visit) error {
				if !v.chance() { // most holders are quick, so that the line moves
					v.spell /= 4
				}
				return hold(ctx, c, v, held.Begin, m.Lock, (*lock.Lease).Unlock)
			}
		})
		lookAt(w, held)
	})
}

func TestSimArrivalsAtAnElection(t *testing.T) {
	sim.Run(t, func(w *sim.World) {
		led := w.Exclusive("the leadership")
		contend(w, 3+w.Rand.IntN(2), func(c *sim.Client) (int, func(context.Context, visit) error) {
			return 2, func(ctx context.Context, v visit) error {
				e := election.New(c.Client, w.Path) // an Election has one candidate
				campaign := func(ctx context.Context) (*election.Term, error) { return e.Campaign(ctx, nil) }
				return hold(ctx, c, v, led.Begin, campaign, (*election.Term).Resign)
			}
		})
		lookAt(w, led)
	})
}

// lookAt lists the line at the path of the world again and again.
func lookAt(w *sim.World, held *sim.Exclusive) {
	operator := operatorAt(w, path.Dir(w.Path))
	go func() {
		for w.Context().Err() == nil {
			from := time.Now()
			nodes, _, err := operator.Conn().Children(w.Path)
			switch {
			case err == nil:
				held.Listed(from, time.Now(), nodes...)
			case operator.Err() != nil:
				return
			}
			select {
			case <-time.After(w.Timeout / 64):
			case <-w.Context().Done():
			}
		}
	}()
}
