package conform

import (
	"context"
	"sync"
	"testing"

	"github.com/zkrecipes/zkrecipes/recipestest/sim"
)

// A Lock is the lock under test, as one process sees it.
type Lock struct {
	// Acquire blocks until the process holds the lock, or ctx ends. It is called by one goroutine
	// at a time. It should return soon after ctx has ended.
	Acquire func(ctx context.Context) (Held, error)
}

// A Held is a lock that a process holds.
type Held struct {
	// Release gives the lock back. After an error it is called again.
	Release func(ctx context.Context) error

	// Err returns nil as long as the holder has no reason to think that the lock is lost. It must
	// be safe for concurrent use. Leave it nil if a holder is never told.
	Err func() error

	// Token returns the fencing token. Leave it nil if there are none.
	Token func() int64
}

// A New makes the lock at w.Path ready for the process c. It is called once for each process,
// before the scenario begins. A lock over package protocol uses c.Client. One over a plain zk.Conn
// dials w.Server.ConnectString() with c.Dial, and asks for the session timeout w.Timeout. w.Cleanup
// is the place to close what New has opened: closing must end the calls that still wait.
type New func(w *sim.World, c *sim.Client) Lock

// Run runs all scenarios as subtests of t, in parallel with each other and with other parallel
// tests. It fails those in which the lock does what it must not. With -short it draws fewer faults.
func Run(t *testing.T, lock New) {
	t.Helper()
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) { sim.Run(t, s.simulate(lock), s.options()...) })
	}
}

// Find returns the scenarios in which the lock does what it must not, and what that is. It does not
// fail t, and blocks until all scenarios are over. Use it for a lock that is known to be wrong.
func Find(t *testing.T, lock New) map[string]error {
	t.Helper()
	var mu sync.Mutex // protects found
	found := make(map[string]error)
	t.Run("find", func(t *testing.T) {
		for _, s := range scenarios {
			t.Run(s.name, func(t *testing.T) {
				if f := sim.Find(t, s.simulate(lock), s.options()...); f != nil {
					mu.Lock()
					defer mu.Unlock()
					found[s.name] = f.Err
				}
			})
		}
	})
	return found
}
