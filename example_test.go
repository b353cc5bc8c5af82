package zkrecipes_test

import (
	"context"
	"fmt"
	"log"

	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

// importOrders stands in the package documentation, too. A test compares the two.
func importOrders(ctx context.Context, servers string) error {
	client, err := protocol.Connect(ctx, servers) // "zk1:2181,zk2:2181,zk3:2181"
	if err != nil {
		return err
	}
	defer client.Close()

	importer := lock.New(client, "/locks/order-import")
	return importer.Do(ctx, func(ctx context.Context, lease *lock.Lease) error {
		// One process at a time gets here. Its ctx is cancelled if it loses the lock.
		return load(ctx, lease.Token())
	})
}

func load(ctx context.Context, token int64) error {
	fmt.Println("importing, with a token:", token > 0)
	return ctx.Err()
}

func Example() {
	server, err := embedded.Start(embedded.Config{}) // in production, an ensemble
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()

	if err := importOrders(context.Background(), server.ConnectString()); err != nil {
		log.Fatal(err)
	}
	// Output:
	// importing, with a token: true
}
