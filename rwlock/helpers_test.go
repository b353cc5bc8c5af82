package rwlock_test

import (
	"context"
	"testing"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/rwlock"
)

func TestMain(m *testing.M) { suite.Main(m) }

const timeout = suite.Limit

type group = suite.Group

// A verb is Lock or RLock.
type verb func(*rwlock.RWMutex, context.Context) (*rwlock.Lease, error)

var (
	write verb = (*rwlock.RWMutex).Lock
	read  verb = (*rwlock.RWMutex).RLock
)

func must(t *testing.T, v verb, m *rwlock.RWMutex) *rwlock.Lease {
	t.Helper()
	return suite.Must(t, func(ctx context.Context) (*rwlock.Lease, error) { return v(m, ctx) })
}

func unlock(t *testing.T, leases ...*rwlock.Lease) {
	t.Helper()
	suite.Unlock(t, leases...)
}

func awaitContenders(t *testing.T, m *rwlock.RWMutex, n int) []rwlock.Contender {
	t.Helper()
	return suite.Await(t, n, m.Contenders)
}

// enter makes v wait for the lock in the background, and returns when the watcher sees it as the
// n-th in line.
func enter(t *testing.T, wait *group, v verb, m, watcher *rwlock.RWMutex, n int) <-chan *rwlock.Lease {
	t.Helper()
	lease := make(chan *rwlock.Lease, 1)
	wait.Go(func() error {
		defer close(lease)
		l, err := v(m, t.Context())
		if err == nil {
			lease <- l
		}
		return err
	})
	awaitContenders(t, watcher, n)
	return lease
}

// ways are the two ways to take the lock, as lockers of the common suite.
func ways(opts ...rwlock.Option) map[string]suite.NewLocker {
	type do = func(context.Context, func(context.Context, *rwlock.Lease) error) error
	locker := func(m *rwlock.RWMutex, lock, try func(context.Context) (*rwlock.Lease, error), do do) suite.Locker {
		return suite.Locker{
			Lock:    suite.Leases(lock),
			TryLock: suite.Leases(try),
			Block:   suite.Leases(m.Lock),
			Do: func(ctx context.Context, fn func(context.Context, suite.Lease) error) error {
				return do(ctx, func(ctx context.Context, l *rwlock.Lease) error { return fn(ctx, l) })
			},
			Contenders: func(ctx context.Context) (nodes []string, err error) {
				line, err := m.Contenders(ctx)
				for _, c := range line {
					nodes = append(nodes, c.Node)
				}
				return nodes, err
			},
			Break: m.Break,
		}
	}

	return map[string]suite.NewLocker{
		"write": func(c *protocol.Client, path string) suite.Locker {
			m := rwlock.New(c, path, opts...)
			return locker(m, m.Lock, m.TryLock, m.Do)
		},
		"read": func(c *protocol.Client, path string) suite.Locker {
			m := rwlock.New(c, path, opts...)
			return locker(m, m.RLock, m.TryRLock, m.RDo)
		},
	}
}
