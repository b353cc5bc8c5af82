package ensemble

import (
	"errors"
	"os"
	"sync"
	"testing"

	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/recipestest/ensemble/launch"
)

// Real returns a real ZooKeeper for tb: the servers that ZKRECIPES_SERVERS names, or else a server
// that Real starts (in Docker or from a local install: see the package documentation). All tests of
// a process share one server, so each should use its own root path there.
//
// Real blocks until the server answers. For the first test of a process that takes a second or two,
// or longer if an image must be pulled. Real skips tb if there is no ZooKeeper, or if -short or
// ZKRECIPES_REAL=0 leaves real servers out. With ZKRECIPES_REQUIRE_REAL=1 it fails tb instead. If a
// server doesn't start, tb always fails.
//
// Real is safe for concurrent use. Call it from the goroutine that runs tb's test.
func Real(tb testing.TB) *recipestest.Server {
	tb.Helper()
	if err := leftOut(); err != nil {
		unavailable(tb, err)
	}

	if servers := os.Getenv("ZKRECIPES_SERVERS"); servers != "" {
		return recipestest.Attach(tb, servers)
	}

	server, err := sharedServer()
	if errors.Is(err, launch.ErrUnavailable) {
		unavailable(tb, err)
	}
	if err != nil {
		tb.Fatalf("ensemble: %v", err)
	}

	tb.Logf("ensemble: %s", server.about())
	return server.Server(tb)
}

// sharedServer starts the server that the tests of this process share. It runs until the process
// ends. (Its supervisor notices that.)
var sharedServer = sync.OnceValues(func() (*Cluster, error) {
	launcher, err := findLauncher()
	if err != nil {
		return nil, err
	}
	c := &Cluster{launcher: launcher}
	if err := c.start(1, newSettings(nil)); err != nil {
		return nil, errors.Join(err, c.end())
	}
	return c, nil
})
