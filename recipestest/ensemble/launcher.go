package ensemble

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
)

// A launcher runs supervisors, and thereby servers.
type launcher interface {
	// launch runs a supervisor; its server is not started yet.
	launch(spec serverSpec) (*supervisor, error)

	// bind is the address on which servers listen for clients.
	bind() string

	// loopback is the address at which servers reach this process's loopback.
	loopback() string

	// String says where servers run, for log and error messages.
	String() string
}

// errUnavailable marks errors that say that there is no ZooKeeper to be had here.
var errUnavailable = errors.New("no real ZooKeeper here")

// findLauncher looks for a way to run ZooKeeper, once per process.
var findLauncher = sync.OnceValues(func() (launcher, error) {
	docker, dockerErr := newDocker()
	if dockerErr == nil {
		return docker, nil
	}
	java, javaErr := newLocalJava()
	if javaErr == nil {
		return java, nil
	}
	return nil, fmt.Errorf("%w:\nDocker: %w\nlocal Java: %w", errUnavailable, dockerErr, javaErr)
})

// unavailable ends tb because there is no server: with failure where one is
// required, else by skipping.
func unavailable(tb testing.TB, err error) {
	tb.Helper()
	if os.Getenv("ZKRECIPES_REQUIRE_REAL") == "1" {
		tb.Fatalf("ensemble: ZKRECIPES_REQUIRE_REAL=1, but %v", err)
	}
	tb.Skipf("ensemble: %v\nset ZKRECIPES_SERVERS to the connect string of a running ZooKeeper to use that", err)
}

// launch runs spec's server by l and waits until it answers at address.
func launchServer(l launcher, spec serverSpec) (*supervisor, error) {
	s, err := l.launch(spec)
	if err != nil {
		return nil, fmt.Errorf("%v: %w", l, err)
	}
	if err := s.command("start"); err != nil {
		return nil, errors.Join(fmt.Errorf("%v: %w", l, err), s.end())
	}
	return s, nil
}
