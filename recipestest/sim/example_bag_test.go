package sim_test

import (
	"context"
	"errors"
	"testing"

	"github.com/zkrecipes/zkrecipes/queue"
	"github.com/zkrecipes/zkrecipes/recipestest/sim"
)

// Call it TestSimTasks, in a file of yours.
func simTasks(t *testing.T) {
	sim.Run(t, func(w *sim.World) {
		tasks := w.Bag("tasks")
		clients := w.Clients(2)
		w.Watches = 3 * len(clients) // each session watches the queue's own nodes for as long as it lasts
		for _, c := range clients {
			q := queue.New(c.Client, w.Path)
			c.Go(func(ctx context.Context) error {
				_, err := q.Offer(ctx, []byte(c.Name))
				tasks.Put(err, c.Name)
				return nil
			})
		}

		w.Finally("the queue is drained", func(ctx context.Context) error {
			q := queue.New(clients[0].Client, w.Path)
			for {
				data, err := q.Poll(ctx)
				if errors.Is(err, queue.ErrEmpty) {
					return nil
				}
				tasks.Out(err, string(data))
				if err != nil {
					return err
				}
			}
		})
	})
}

// A queue from which comes what was put in, once.
func ExampleBag() {
	_ = simTasks // go test calls it
}
