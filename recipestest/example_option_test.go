package recipestest_test

import (
	"errors"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

// Call it TestLockExcludesOnAllServers, in a file of yours. Each subtest has a server of another
// kind.
func lockExcludesOnAllServers(t *testing.T) {
	for name, option := range map[string]recipestest.Option{
		"followers that lag":    recipestest.Lagging(50 * time.Millisecond),
		"three addresses":       recipestest.WithFollowers(3),
		"TLS":                   recipestest.WithTLS(),
		"client certificates":   recipestest.WithMutualTLS(),
		"without a TCP port":    recipestest.WithInMemory(),
		"as ZooKeeper 3.4 does": recipestest.WithConfig(embedded.Config{NoContainers: true}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := recipestest.Start(t, option)
			path := server.Root(t) + "/lock"
			lease, err := lock.New(server.Client(t), path).Lock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := lock.New(server.Client(t), path).TryLock(t.Context()); !errors.Is(err, lock.ErrLocked) {
				t.Errorf("error %v", err)
			}
			if err := lease.Unlock(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// The same test on servers of several kinds.
func ExampleOption() {
	_ = lockExcludesOnAllServers // go test calls it
}
