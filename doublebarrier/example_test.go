package doublebarrier_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/doublebarrier"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

func Example() {
	srv, err := embedded.Start(embedded.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer srv.Close()
	ctx := context.Background()
	client, err := protocol.Connect(ctx, srv.ConnectString())
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	const workers = 3
	b := doublebarrier.New(client, "/barriers/batch", workers)
	var wait sync.WaitGroup
	for range workers { // in real life each in a process of its own
		wait.Go(func() {
			e, err := b.Enter(ctx)
			if err != nil {
				log.Fatal(err)
			}
			fmt.Println("one of", len(e.Members()), "at work")
			if err := e.Leave(ctx); err != nil {
				log.Fatal(err)
			}
		})
	}
	wait.Wait()
	fmt.Println("all are done")
	// Output:
	// one of 3 at work
	// one of 3 at work
	// one of 3 at work
	// all are done
}

func ExampleBarrier_Do() {
	srv, err := embedded.Start(embedded.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer srv.Close()
	ctx := context.Background()
	client, err := protocol.Connect(ctx, srv.ConnectString())
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	b := doublebarrier.New(client, "/barriers/step", 1)
	for step := range 2 { // the same path serves round after round
		err := b.Do(ctx, func(ctx context.Context) error {
			fmt.Println("step", step)
			return ctx.Err() // ends early if the place is lost
		})
		if err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// step 0
	// step 1
}

func ExampleBarrier_Enter_timeout() {
	srv, err := embedded.Start(embedded.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer srv.Close()
	client, err := protocol.Connect(context.Background(), srv.ConnectString())
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	_, err = doublebarrier.New(client, "/barriers/batch", 2).Enter(ctx) // no other member comes
	fmt.Println("in time:", !errors.Is(err, context.DeadlineExceeded))
	// Output:
	// in time: false
}
