package election_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/zkrecipes/zkrecipes/election"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

// A replicated service calls Run. The others observe the leader.
func Example() {
	ctx := context.Background()
	client, stop := connect()
	defer stop()
	e := election.New(client, "/services/billing/leader", election.WithBackOff(func() backoff.BackOff {
		return backoff.NewConstantBackOff(time.Minute) // after a term of less than a second
	}))

	done := errors.New("that is all for today")
	err := e.Run(ctx, []byte("10.0.0.7:8080"), func(ctx context.Context, t *election.Term) error {
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

// Listen is for a program that has a main loop of its own.
func ExampleElection_Listen() {
	ctx, cancel := context.WithCancel(context.Background())
	client, stop := connect()
	defer stop()
	e := election.New(client, "/services/billing/leader")

	led := false
	err := e.Listen(ctx, []byte("10.0.0.7:8080"), func(s election.State) {
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

// Clients of a service follow its leader.
func ExampleElection_Observe() {
	ctx := context.Background()
	client, stop := connect()
	defer stop()

	e := election.New(client, "/services/billing/leader")
	term, err := e.Campaign(ctx, []byte("10.0.0.7:8080"))
	if err != nil {
		log.Fatal(err)
	}

	for leader, err := range e.Observe(ctx) { // begins with the present state
		if err != nil {
			log.Fatal(err)
		}
		if leader.Vacant() {
			fmt.Println("no leader")
			break // a client goes on
		}
		fmt.Printf("%s leads\n", leader.Value)
		if err := term.Resign(ctx); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// 10.0.0.7:8080 leads
	// no leader
}

// Before a machine is shut down, its process hands the leadership to a candidate of its choice.
func ExampleTerm_ResignTo() {
	ctx := context.Background()
	client, stop := connect()
	defer stop()

	e := election.New(client, "/services/billing/leader")
	term, err := e.Campaign(ctx, []byte("host-1"))
	if err != nil {
		log.Fatal(err)
	}
	next := make(chan *election.Term)
	go func() { // another process, in real life
		term, err := e.Campaign(ctx, []byte("host-2"))
		if err != nil {
			log.Fatal(err)
		}
		next <- term
	}()

	for candidates := []election.Candidate{}; len(candidates) < 2; time.Sleep(time.Millisecond) {
		if candidates, err = e.Candidates(ctx); err != nil {
			log.Fatal(err)
		}
		for _, c := range candidates {
			if string(c.Value) == "host-2" {
				if err := term.ResignTo(ctx, c.Node); err != nil {
					log.Fatal(err)
				}
			}
		}
	}

	successor := <-next
	defer successor.Resign(ctx)
	fmt.Println("a greater token:", successor.Token() > term.Token())
	// Output:
	// a greater token: true
}
