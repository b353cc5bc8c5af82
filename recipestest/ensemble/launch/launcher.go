// Package launch runs real ZooKeeper servers, in Docker or from a local install, and reports their
// state. Package ensemble has the rules that choose between the two.
//
// It is for this project's own use: package ensemble and the nemesis share it across modules. It
// can change in any way at any time.
package launch

import (
	"errors"
	"fmt"
	"sync"
)

// A Launcher runs supervisors. Each supervisor runs one server.
type Launcher interface {
	// launch runs a supervisor. It doesn't start the server yet.
	launch(spec Spec) (*Supervisor, error)

	// Bind is the address on which servers listen for clients.
	Bind() string

	// Loopback is the address at which servers reach this process's loopback interface.
	Loopback() string

	// String describes where servers run, for log and error messages.
	String() string
}

// ErrUnavailable is wrapped by errors which say that no ZooKeeper can be run here.
var ErrUnavailable = errors.New("no real ZooKeeper here")

// Find looks for a way to run ZooKeeper, once per process.
var Find = sync.OnceValues(func() (Launcher, error) {
	docker, dockerErr := newDocker()
	if dockerErr == nil {
		return docker, nil
	}
	java, javaErr := newLocalJava()
	if javaErr == nil {
		return java, nil
	}
	return nil, fmt.Errorf("%w:\nDocker: %w\nlocal Java: %w", ErrUnavailable, dockerErr, javaErr)
})

// Start starts the server of spec with l. It returns once the supervisor has started the server's
// process.
func Start(l Launcher, spec Spec) (*Supervisor, error) {
	s, err := l.launch(spec)
	if err != nil {
		return nil, fmt.Errorf("%v: %w", l, err)
	}
	if err := s.Command("start"); err != nil {
		return nil, errors.Join(fmt.Errorf("%v: %w", l, err), s.End())
	}
	return s, nil
}
