package conform_test

import (
	"context"
	"testing"

	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/recipestest/conform"
	"github.com/zkrecipes/zkrecipes/recipestest/sim"
)

// Put your own lock in the place of lock.New. Each call makes the lock of one process.
func newLock(w *sim.World, c *sim.Client) conform.Lock {
	m := lock.New(c.Client, w.Path)
	return conform.Lock{Acquire: func(ctx context.Context) (conform.Held, error) {
		lease, err := m.Lock(ctx)
		if err != nil {
			return conform.Held{}, err
		}
		return conform.Held{Release: lease.Unlock, Err: lease.Err, Token: lease.Token}, nil
	}}
}

// The scenarios are subtests of a test, here TestLockConforms.
func ExampleRun() {
	_ = func(t *testing.T) { conform.Run(t, newLock) } // go test calls it
}
