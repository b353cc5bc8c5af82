package recipestest_test

import (
	"testing"

	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// Call it TestServerGetsAnotherAddress, in a file of yours.
func serverGetsAnotherAddress(t *testing.T) {
	recipestest.Bubble(t, func(t *testing.T, server *recipestest.Server) {
		names, link := server.Names(), server.Link(t)
		names.Resolve("zk1", "10.0.0.1")
		names.Give("10.0.0.1", link.Dial)
		client := names.Client(t, "zk1:2181")
		path := server.Root(t) + "/lock"
		lease, err := lock.New(client, path).Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}

		names.Resolve("zk1", "10.0.0.2")
		names.Give("10.0.0.2", server.Dial)
		names.Give("10.0.0.1", nil)
		link.Cut()
		if err := lease.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A server moves, and its name resolves to another address.
func ExampleNames() {
	_ = serverGetsAnotherAddress // go test calls it
}
