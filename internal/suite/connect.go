package suite

import (
	"context"
	"log"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

// Connect returns a client of an embedded server, and what ends both. It is for examples, whose
// programs would connect to an ensemble: "zk1:2181,zk2:2181,zk3:2181".
func Connect() (client *protocol.Client, stop func()) {
	server, err := embedded.Start(embedded.Config{})
	if err != nil {
		log.Fatal(err)
	}
	client, err = protocol.Connect(context.Background(), server.ConnectString())
	if err != nil {
		log.Fatal(err)
	}
	return client, func() { client.Close(); server.Close() }
}
