package queue_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/queue"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

// connected calls f with a client of a ZooKeeper in memory.
func connected(f func(ctx context.Context, client *protocol.Client) error) {
	server, err := embedded.Start(embedded.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	ctx := context.Background()
	client, err := protocol.Connect(ctx, server.ConnectString())
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	if err := f(ctx, client); err != nil {
		log.Fatal(err)
	}
}

func Example() {
	connected(func(ctx context.Context, client *protocol.Client) error {
		q := queue.New(client, "/queues/mail")
		for _, text := range []string{"first", "second"} {
			id, err := q.Offer(ctx, []byte(text))
			if err != nil {
				return err
			}
			fmt.Println("offered", id)
		}
		for range 2 {
			data, err := q.Take(ctx)
			var uncertain *queue.UncertainError
			if errors.As(err, &uncertain) {
				// It was removed, or not: do what is better for this kind of data, drop it or
				// handle it twice.
			} else if err != nil {
				return err
			}
			fmt.Printf("took %s\n", data)
		}
		return nil
	})
	// Output:
	// offered qn-0000000000
	// offered qn-0000000001
	// took first
	// took second
}

// A worker that may crash: what it has not acknowledged comes back, and what has failed three times
// is put aside.
func ExampleQueue_Items() {
	connected(func(ctx context.Context, client *protocol.Client) error {
		dead := queue.New(client, "/queues/failed-jobs")
		q := queue.New(client, "/queues/jobs", queue.WithDeadLetter(dead, 3))
		if _, err := q.OfferAll(ctx, [][]byte{[]byte("poison"), []byte("good")}); err != nil {
			return err
		}
		for item, err := range q.Items(ctx) {
			if err != nil {
				return err
			}
			fmt.Printf("%s, attempt %d\n", item.Data(), item.Attempt())
			if string(item.Data()) == "good" {
				if err := item.Ack(ctx); err != nil {
					return err
				}
				break
			}
			if err := item.Nack(ctx); err != nil {
				return err
			}
		}
		data, err := dead.Poll(ctx)
		fmt.Printf("dead letter: %s\n", data)
		return err
	})
	// Output:
	// poison, attempt 1
	// poison, attempt 2
	// poison, attempt 3
	// good, attempt 1
	// dead letter: poison
}
