package recipestest_test

import (
	"context"
	"errors"
	"testing"

	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// Call it TestImportStopsWhenItsSessionEnds, in a file of yours.
func importStopsWhenItsSessionEnds(t *testing.T) {
	t.Parallel()
	server := recipestest.Start(t) // a ZooKeeper of this test's own
	client := server.Client(t)     // which is closed at the end
	session, err := client.Session(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	err = lock.New(client, server.Root(t)+"/import").Do(t.Context(), func(ctx context.Context, _ *lock.Lease) error {
		server.ExpireSession(session.ID())
		<-ctx.Done()
		return nil
	})
	if !errors.Is(err, protocol.ErrLost) {
		t.Errorf("error %v", err)
	}
}

// A test of code that must stop when its session ends.
func ExampleServer() {
	_ = importStopsWhenItsSessionEnds // go test calls it
}
