package sim_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/doublebarrier"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest/sim"
)

func TestSimDoubleBarrier(t *testing.T) {
	sim.Run(t, func(w *sim.World) {
		n := 2 + w.Rand.IntN(4)
		rounds := w.Rounds("the barrier", n)
		processes := n + w.Rand.IntN(2)
		opts := []doublebarrier.Option{doublebarrier.WithWaiting()}
		if w.Rand.IntN(2) == 0 {
			opts = append(opts, doublebarrier.WithKeptRounds())
		}
		w.Watches = 2 * processes // on a gate whose members have died: it stays until another member comes
		contend(w, processes, func(c *sim.Client) (int, func(context.Context, visit) error) {
			b := doublebarrier.New(c.Client, w.Path, n, opts...)
			return 1, func(ctx context.Context, v visit) error { return enterAndLeave(ctx, c, b, rounds, v) }
		})

		w.Finally("a round comes about", func(ctx context.Context) error {
			errs := make(chan error, n)
			for _, c := range w.Alive()[:n] {
				b := doublebarrier.New(c.Client, w.Path, n, opts...)
				go func() { errs <- b.Do(ctx, func(context.Context, *doublebarrier.Entry) error { return nil }) }()
			}

			var all error
			for range n {
				all = errors.Join(all, <-errs)
			}

			return all
		})
	})
}

func enterAndLeave(ctx context.Context, c *sim.Client, b *doublebarrier.Barrier, rounds *sim.Rounds, planned visit) error {
	wait, cancel := context.WithTimeout(ctx, planned.wait)
	defer cancel()

	called := time.Now()
	e, err := b.Enter(wait)
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, protocol.ErrLost), errors.Is(err, protocol.ErrUncertain):
		return nil
	case err != nil:
		return fmt.Errorf("enter, with ctx error %v: %w", wait.Err(), err)
	}

	v := rounds.Enter(c, called, e, e.Members())
	v.Keep(planned.spell)
	return v.Leave(e.Leave(ctx))
}
