package embedded_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

// A client of a follower that lags reads what was, until it syncs.
func ExampleFollower() {
	server, err := embedded.Start(embedded.Config{TickTime: time.Second})
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	follower := server.Follower()

	ctx := context.Background()
	client, err := protocol.Connect(ctx, server.ConnectString(), protocol.WithDialer(follower.Dial))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	session, err := recipe.SessionOf(ctx, client)
	if err != nil {
		log.Fatal(err)
	}

	follower.Lag(50 * time.Millisecond)
	if err := session.Create(ctx, "/a", []byte("new"), zk.FlagPersistent); err != nil {
		log.Fatal(err)
	}
	if err := session.Sync(ctx, "/a"); err != nil {
		log.Fatal(err)
	}
	data, _, err := session.Get(ctx, "/a")
	fmt.Printf("%s %v\n", data, err)
	// Output:
	// new <nil>
}
