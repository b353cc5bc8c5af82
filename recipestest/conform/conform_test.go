package conform_test

import (
	"context"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/recipestest/conform"
	"github.com/zkrecipes/zkrecipes/recipestest/sim"
	"github.com/zkrecipes/zkrecipes/semaphore"
)

func TestMutexConforms(t *testing.T) {
	conform.Run(t, func(w *sim.World, c *sim.Client) conform.Lock {
		m := lock.New(c.Client, w.Path)
		return conform.Lock{Acquire: func(ctx context.Context) (conform.Held, error) {
			l, err := m.Lock(ctx)
			if err != nil {
				return conform.Held{}, err
			}
			return conform.Held{Release: l.Unlock, Err: l.Err, Token: l.Token}, nil
		}}
	})
}

func TestSemaphoreOfOneConforms(t *testing.T) {
	conform.Run(t, func(w *sim.World, c *sim.Client) conform.Lock {
		s := semaphore.New(c.Client, w.Path, 1)
		return conform.Lock{Acquire: func(ctx context.Context) (conform.Held, error) {
			p, err := s.Acquire(ctx)
			if err != nil {
				return conform.Held{}, err
			}
			return conform.Held{Release: p.Release, Err: p.Err, Token: p.Token}, nil
		}}
	})
}

// zkLock is the lock of go-zookeeper, which knows no ctx and tells no holder of a loss.
func zkLock(w *sim.World, c *sim.Client) conform.Lock {
	conn, _, err := zk.Connect([]string{w.Server.ConnectString()}, w.Timeout, zk.WithDialer(c.Dial), zk.WithLogger(silence{}))
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(conn.Close)
	l := zk.NewLock(conn, w.Path, zk.WorldACL(zk.PermAll))
	return conform.Lock{Acquire: func(ctx context.Context) (conform.Held, error) {
		if err := l.Lock(); err != nil {
			return conform.Held{}, err
		}
		return conform.Held{Release: func(context.Context) error { return l.Unlock() }}, nil
	}}
}

func TestLockOfGoZookeeperFailsInManyWays(t *testing.T) {
	found := conform.Find(t, zkLock)
	for name, err := range found {
		t.Logf("%s: %v", name, err)
	}
	for _, name := range []string{
		"ctx that has ended", "ctx ends while a process waits", "ctx ends while no server answers",
		"holder is cut off", "holder's session expires", "holder's node is deleted", "waiter's node is deleted",
		"held again in the next session", "foreign nodes",
	} {
		require.Contains(t, found, name)
	}
	require.NotContains(t, found, "one holder at a time", "it works as long as nothing goes wrong")
}

type silence struct{}

func (silence) Printf(string, ...any) {}
