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
