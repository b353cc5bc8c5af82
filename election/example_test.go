package election_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/zkrecipes/zkrecipes/election"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

// A replicated service calls Run. The others observe the leader.
func Example() {
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
	e := election.New(client, "/services/billing/leader")

	done := errors.New("that is all for today")
	err = e.Run(ctx, []byte("10.0.0.7:8080"), func(ctx context.Context, t *election.Term) error {
		// Of all replicas, one at a time gets here. Its ctx is cancelled if the term is lost.
		for leader, err := range e.Observe(ctx) {
			if err != nil {
				return err
			}
			fmt.Printf("%s leads, with a token: %t\n", leader.Value, leader.Token == t.Token())
			break
		}
		return done
	})

	fmt.Println(errors.Is(err, done))
	_, err = e.Leader(ctx)
	fmt.Println(errors.Is(err, election.ErrNoLeader))
	// Output:
	// 10.0.0.7:8080 leads, with a token: true
	// true
	// true
}

// Listen is for a program that has a main loop of its own.
func ExampleElection_Listen() {
	server, err := embedded.Start(embedded.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	ctx, cancel := context.WithCancel(context.Background())
	client, err := protocol.Connect(ctx, server.ConnectString())
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	e := election.New(client, "/services/billing/leader")

	led := false
	err = e.Listen(ctx, []byte("10.0.0.7:8080"), func(s election.State) {
		switch {
		case s.Term != nil:
			fmt.Printf("%s leads\n", s.Leader.Value)
			led = true
			cancel() // the program ends
		case led:
			fmt.Println("before another replica may lead, finish the work")
		}
	})
	fmt.Println(err)
	// Output:
	// 10.0.0.7:8080 leads
	// before another replica may lead, finish the work
	// <nil>
}
