package conform_test

import (
	"context"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/election"
	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/recipestest/conform"
	"github.com/zkrecipes/zkrecipes/recipestest/sim"
	"github.com/zkrecipes/zkrecipes/rwlock"
	"github.com/zkrecipes/zkrecipes/semaphore"
)

// locking makes a Lock of a verb that acquires an H, and of one that gives it back.
func locking[H interface {
	Err() error
	Token() int64
}](acquire func(context.Context) (H, error), back func(H, context.Context) error) conform.Lock {
	return conform.Lock{Acquire: func(ctx context.Context) (conform.Held, error) {
		h, err := acquire(ctx)
		if err != nil {
			return conform.Held{}, err
		}
		release := func(ctx context.Context) error { return back(h, ctx) }
		return conform.Held{Release: release, Err: h.Err, Token: h.Token}, nil
	}}
}

func TestOurLocksConform(t *testing.T) {
	readWrite := func(opts ...rwlock.Option) conform.New {
		return func(w *sim.World, c *sim.Client) conform.Lock {
			return locking(rwlock.New(c.Client, w.Path, opts...).Lock, (*rwlock.Lease).Unlock)
		}
	}
	for name, newLock := range map[string]conform.New{
		"Mutex": func(w *sim.World, c *sim.Client) conform.Lock {
			return locking(lock.New(c.Client, w.Path).Lock, (*lock.Lease).Unlock)
		},
		"Mutex with a local queue": func(w *sim.World, c *sim.Client) conform.Lock {
			return locking(lock.New(c.Client, w.Path, lock.WithLocalQueue()).Lock, (*lock.Lease).Unlock)
		},
		"Simple": func(w *sim.World, c *sim.Client) conform.Lock {
			return locking(lock.NewSimple(c.Client, w.Path).Lock, (*lock.Lease).Unlock)
		},
		"RWMutex":                    readWrite(),
		"RWMutex of Curator":         readWrite(rwlock.WithSpelling(rwlock.Curator)),
		"RWMutex of kazoo":           readWrite(rwlock.WithSpelling(rwlock.Kazoo)),
		"RWMutex with local sharing": readWrite(rwlock.WithLocalSharing()),
		"Semaphore": func(w *sim.World, c *sim.Client) conform.Lock {
			return locking(semaphore.New(c.Client, w.Path, 1).Acquire, (*semaphore.Permit).Release)
		},
		"Election": func(w *sim.World, c *sim.Client) conform.Lock {
			e := election.New(c.Client, w.Path)
			campaign := func(ctx context.Context) (*election.Term, error) { return e.Campaign(ctx, nil) }
			return locking(campaign, (*election.Term).Resign)
		},
	} {
		t.Run(name, func(t *testing.T) { conform.Run(t, newLock) })
	}
}

// zkLock is the lock of go-zookeeper, which knows no ctx and tells no holder of a loss.
func zkLock(w *sim.World, c *sim.Client) conform.Lock {
	conn, _, err := zk.Connect([]string{w.Server.ConnectString()}, w.Timeout, zk.WithDialer(c.Dial), zk.WithLogger(silence{}), zk.WithMaxConnBufferSize(1<<16), zk.WithMaxBufferSize(1<<16))
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
