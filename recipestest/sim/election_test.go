package sim_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/election"
	"github.com/zkrecipes/zkrecipes/recipestest/sim"
)

func TestSimElection(t *testing.T) {
	sim.Run(t, func(w *sim.World) {
		// The observer watches for the creation of the line's node. If the node is created just
		// before that, the watch stays until the node is deleted.
		w.Watches = 1
		led := w.Exclusive("the leadership")
		w.Processes(2+w.Rand.IntN(3), func(c *sim.Client) {
			e := election.New(c.Client, w.Path)
			c.Go(func(ctx context.Context) error { return campaign(ctx, c, e, led) })
		})

		newest := int64(0)
		stop := watch(w, election.New(w.Clients(1)[0].Client, w.Path).Observe, func(_, l election.Leader) error {
			if !l.Vacant() && l.Token < newest {
				return fmt.Errorf("an observer saw leader %d after %d", l.Token, newest)
			}
			newest = max(newest, l.Token)
			return nil
		})
		w.Finally("a leader is elected and observed", func(ctx context.Context) error {
			t, err := election.New(w.Alive()[0].Client, w.Path).Campaign(ctx, []byte("last"))
			if err != nil {
				return err
			}
			time.Sleep(10 * w.Timeout)
			seen, err := stop()
			if err != nil {
				return err
			}
			if seen.Token != t.Token() {
				return fmt.Errorf("the observer saw leader %d last, but it is %d", seen.Token, t.Token())
			}
			return t.Resign(ctx)
		})
	})
}

var errLeft = errors.New("that was the last term")

// campaign leads for some terms.
func campaign(ctx context.Context, c *sim.Client, e *election.Election, led *sim.Exclusive) error {
	terms := 1 + c.Rand.IntN(4)
	called := time.Now()
	var turn *sim.Turn
	err := e.Run(ctx, []byte(c.Name), func(ctx context.Context, t *election.Term) error {
		turn = led.Begin(c, called, t)
		if err := t.Proclaim(ctx, []byte("ready")); err != nil && t.Err() == nil {
			return err
		}

		turn.Keep(c.Spell())
		if c.Rand.IntN(4) == 0 {
			if line, err := e.Candidates(ctx); err == nil && len(line) > 1 && turn.Holds() {
				t.ResignTo(ctx, line[len(line)-1].Node)
			}
		}

		err := turn.End(t.Resign(context.WithoutCancel(ctx)))
		called = time.Now()
		if terms--; terms == 0 {
			return errors.Join(err, errLeft)
		}

		return err
	})

	if errors.Is(err, errLeft) {
		return nil
	}

	return err
}
