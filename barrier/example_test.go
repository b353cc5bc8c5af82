package barrier_test

import (
	"context"
	"fmt"
	"log"

	"github.com/zkrecipes/zkrecipes/barrier"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

func Example() {
	server, err := embedded.Start(embedded.Config{}) // in production, an ensemble
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	ctx := context.Background()
	client, err := protocol.Connect(ctx, server.ConnectString()) // "zk1:2181,zk2:2181,zk3:2181"
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	b := barrier.New(client, "/barriers/migration")
	if err := b.Set(ctx); err != nil {
		log.Fatal(err)
	}
	waited := make(chan error)
	go func() { waited <- b.Wait(ctx) }()
	fmt.Println("migrating")
	if err := b.Remove(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println("waited:", <-waited)
	// Output:
	// migrating
	// waited: <nil>
}

// A barrier that falls if the process that has set it dies.
func ExampleWithEphemeral() {
	ctx := context.Background()
	server, err := embedded.Start(embedded.Config{}) // in production, an ensemble
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client, err := protocol.Connect(ctx, server.ConnectString()) // "zk1:2181,zk2:2181,zk3:2181"
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	b := barrier.New(client, "/barriers/maintenance", barrier.WithEphemeral(), barrier.WithData([]byte("host-4")))
	if err := b.Set(ctx); err != nil {
		log.Fatal(err)
	}
	waited := make(chan error)
	go func() { waited <- b.Wait(ctx) }()

	session, err := client.Session(ctx)
	if err != nil {
		log.Fatal(err)
	}
	server.ExpireSession(session.ID()) // as if host-4 had died
	fmt.Println("waited:", <-waited)
	// Output:
	// waited: <nil>
}
