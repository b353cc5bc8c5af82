package ensemble

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/recipestest"
)

// Real returns a real ZooKeeper, for tb: the one named by ZKRECIPES_SERVERS, else
// one that is started in Docker or from a local Java install, as the package
// documentation says. The tests of one process share one server, and what a test
// leaves below its own root path is its own affair.
//
// Real blocks until the server answers: for the first test of a process that is
// a second or two, longer if an image has to be pulled. Where there is no
// ZooKeeper it skips tb, or fails it if ZKRECIPES_REQUIRE_REAL is 1. A server
// that is there but does not come up fails tb in any case.
//
// Real is safe for concurrent use. It must be called from the goroutine running
// tb's test.
func Real(tb testing.TB) *recipestest.Server {
	tb.Helper()
	if servers := os.Getenv("ZKRECIPES_SERVERS"); servers != "" {
		return recipestest.Attach(tb, servers)
	}
	server, err := sharedServer()
	if errors.Is(err, errUnavailable) {
		unavailable(tb, err)
	}
	if err != nil {
		tb.Fatalf("ensemble: %v", err)
	}
	tb.Logf("ensemble: %v", server)
	return recipestest.Attach(tb, server.addr)
}

// A standalone is the server that the tests of this process share. Nothing stops
// it but the end of the process, which its supervisor notices.
type standalone struct {
	addr       string
	from       launcher
	supervisor *supervisor
	took       time.Duration
}

func (s *standalone) String() string {
	return fmt.Sprintf("ZooKeeper at %s, %v, up after %v", s.addr, s.from, s.took.Round(time.Millisecond))
}

var sharedServer = sync.OnceValues(func() (*standalone, error) {
	launcher, err := findLauncher()
	if err != nil {
		return nil, err
	}
	begin := time.Now()
	at, err := newPlace(launcher.bind())
	if err != nil {
		return nil, err
	}
	supervisor, err := launchServer(launcher, newSettings(nil).spec(1, at, nil))
	if err != nil {
		return nil, err
	}
	addr := local(at.client)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := awaitServing(ctx, addr); err != nil {
		err = fmt.Errorf("ZooKeeper, %v, did not come up at %s: %w\n%s", launcher, addr, err, supervisor.log())
		return nil, errors.Join(err, supervisor.end())
	}
	return &standalone{addr: addr, from: launcher, supervisor: supervisor, took: time.Since(begin)}, nil
})
