package recipestest_test

import (
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

// Call it TestHolderIsToldInTime, in a file of yours.
func holderIsToldInTime(t *testing.T) {
	slow := recipestest.WithConfigFunc(func(cfg *embedded.Config) { cfg.TickTime = 5 * time.Second })
	recipestest.Bubble(t, func(t *testing.T, server *recipestest.Server) {
		link := server.Link(t)
		lease, err := lock.New(link.Client(t), server.Root(t)+"/job").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}

		began := time.Now()
		link.Stall() // nothing passes any more
		<-lease.Done()
		if silent := time.Since(began); silent > 10*time.Second {
			t.Errorf("the holder was told after %v, when the servers had given the lock away", silent)
		}
		link.Heal()
	}, slow)
}

// A test in virtual time: ten seconds of silence pass in milliseconds.
func ExampleBubble() {
	_ = holderIsToldInTime // go test calls it
}
