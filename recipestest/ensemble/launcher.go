package ensemble

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
)

// A launcher runs supervisors, each of which runs one server.
type launcher interface {
	// launch runs a supervisor. It does not start the server yet.
	launch(spec serverSpec) (*supervisor, error)

	// bind is the address on which servers listen for clients.
	bind() string

	// loopback is the address under which servers reach this process's loopback interface.
	loopback() string

	// String describes where servers run, for log and error messages.
	String() string
}

// errUnavailable is wrapped by errors that say that no ZooKeeper can be run here.
var errUnavailable = errors.New("no real ZooKeeper here")

// leftOut returns an error that says why this run leaves real servers out, or nil if it does not.
func leftOut() error {
	if os.Getenv("ZKRECIPES_REAL") == "0" {
		return fmt.Errorf("%w: ZKRECIPES_REAL=0 leaves real servers out", errUnavailable)
	}
	if testing.Short() {
		return fmt.Errorf("%w: -short leaves real servers out", errUnavailable)
	}
	return nil
}

// findLauncher looks for a way to run ZooKeeper. It does so once per process.
var findLauncher = sync.OnceValues(func() (launcher, error) {
	if err := leftOut(); err != nil {
		return nil, err
	}

	docker, dockerErr := newDocker()
	if dockerErr == nil {
		return docker, nil
	}
	java, javaErr := newLocalJava()
	if javaErr == nil {
		return java, nil
	}
	return nil, fmt.Errorf("%w:\nDocker: %w\nlocal Java: %w\n"+
		"set ZKRECIPES_SERVERS to the connect string of a running ZooKeeper to use that",
		errUnavailable, dockerErr, javaErr)
})

// unavailable ends tb because there is no server. It fails tb if ZKRECIPES_REQUIRE_REAL=1, and
// skips it otherwise.
func unavailable(tb testing.TB, err error) {
	tb.Helper()
	if os.Getenv("ZKRECIPES_REQUIRE_REAL") == "1" {
		tb.Fatalf("ensemble: ZKRECIPES_REQUIRE_REAL=1, but %v", err)
	}
	tb.Skipf("ensemble: %v", err)
}

// launchServer starts the server of spec with l. It returns once the supervisor has started the
// server's process.
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
