package conform

import (
	"context"
	"sync"
	"testing"

	"github.com/zkrecipes/zkrecipes/recipestest/sim"
)

// A Lock is the lock under test, as one process sees it.
type Lock struct {
	// Acquire blocks until the process holds the lock, or ctx ends. It should return soon after ctx
	// has ended. One goroutine at a time calls it.
	Acquire func(ctx context.Context) (Held, error)
}

// A Held is a lock while a process holds it.
type Held struct {
	// Release gives the lock back. If it fails it is called again.
	Release func(ctx context.Context) error

	// Err returns nil as long as the holder has no reason to think that the lock is lost. It must
	// be safe for concurrent use. Leave it nil if your lock can't tell a holder about a loss.
	Err func() error

	// Token returns the fencing token. Leave it nil if there are none.
	Token func() int64
}

// A New makes the lock at w.Path ready for the process c. It is called once for each process,
// before the scenario begins. A lock over package protocol can use c.Client. A lock over a plain
// zk.Conn must dial w.Server.ConnectString() with c.Dial, and ask for the session timeout
// w.Timeout. Use w.Cleanup to close anything New has opened (closing must end calls that still
// wait).
type New func(w *sim.World, c *sim.Client) Lock

// Run runs all scenarios as subtests of t, in parallel with each other and with other parallel
// tests. A subtest fails if the lock breaks a rule. With -short, Run draws fewer faults.
func Run(t *testing.T, lock New) {
	t.Helper()
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) { sim.Run(t, s.simulate(lock), s.options()...) })
	}
}

// Find returns the scenarios in which the lock breaks a rule, and how. It doesn't fail t, and
// blocks until all scenarios have ended. Use it for a lock that is known to be wrong.
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
