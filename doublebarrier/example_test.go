package doublebarrier_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"slices"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/doublebarrier"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

// connect returns a client of an embedded server, and what ends both.
func connect() (client *protocol.Client, stop func()) {
	server, err := embedded.Start(embedded.Config{}) // in production, an ensemble
	if err != nil {
		log.Fatal(err)
	}
	client, err = protocol.Connect(context.Background(), server.ConnectString()) // "zk1:2181,zk2:2181,zk3:2181"
	if err != nil {
		log.Fatal(err)
	}
	return client, func() { client.Close(); server.Close() }
}

func Example() {
	ctx := context.Background()
	client, stop := connect()
	defer stop()

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
	ctx := context.Background()
	client, stop := connect()
	defer stop()

	b := doublebarrier.New(client, "/barriers/step", 1)
	for step := range 2 { // the same path serves round after round
		err := b.Do(ctx, func(ctx context.Context, e *doublebarrier.Entry) error {
			fmt.Println("step", step, "of", len(e.Members()))
			return ctx.Err() // ends early if the place is lost
		})
		if err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// step 0 of 1
	// step 1 of 1
}

func ExampleBarrier_Waiting() {
	ctx := context.Background()
	client, stop := connect()
	defer stop()

	hosts := []string{"host-1", "host-2", "host-3"}
	for _, host := range hosts[:2] { // the third one is late
		b := doublebarrier.New(client, "/barriers/batch", len(hosts), doublebarrier.WithData([]byte(host)))
		go b.Enter(ctx)
	}

	operator := doublebarrier.New(client, "/barriers/batch", len(hosts))
	var waiters []doublebarrier.Waiter
	var err error
	for len(waiters) < 2 {
		time.Sleep(time.Millisecond)
		if waiters, err = operator.Waiting(ctx); err != nil {
			log.Fatal(err)
		}
	}

	fmt.Printf("round %d: %d of %d\n", waiters[0].Round, len(waiters), waiters[0].N)
	for _, host := range hosts {
		if !slices.ContainsFunc(waiters, func(w doublebarrier.Waiter) bool { return string(w.Data) == host }) {
			fmt.Println("missing:", host)
		}
	}
	// Output:
	// round 1: 2 of 3
	// missing: host-3
}

func ExampleBarrier_Enter_timeout() {
	client, stop := connect()
	defer stop()

	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	_, err := doublebarrier.New(client, "/barriers/batch", 2).Enter(ctx) // no other member comes
	fmt.Println("in time:", !errors.Is(err, context.DeadlineExceeded))
	// Output:
	// in time: false
}

// A worker that was started late learns from the round which phase of the job it joins.
func ExampleEntry_Round() {
	ctx := context.Background()
	client, stop := connect()
	defer stop()

	b := doublebarrier.New(client, "/barriers/phases", 1, doublebarrier.WithKeptRounds(), doublebarrier.WithWaiting())
	for range 2 {
		entry, err := b.Enter(ctx)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("phase", entry.Round())
		if err := entry.Leave(ctx); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// phase 1
	// phase 2
}
