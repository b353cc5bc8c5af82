package semaphore_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/semaphore"
)

func TestMain(m *testing.M) { suite.Main(m) }

func acquire(t testing.TB, s *semaphore.Semaphore) *semaphore.Permit {
	t.Helper()
	p, err := s.Acquire(suite.Lasting(t))
	require.NoError(t, err)
	return p
}

func release(t testing.TB, permits ...*semaphore.Permit) {
	t.Helper()
	for _, p := range permits {
		require.NotNil(t, p)
		require.NoError(t, p.Release(suite.Lasting(t)))
	}
}

func later(ctx context.Context, s *semaphore.Semaphore) <-chan *semaphore.Permit {
	return suite.Later(func() *semaphore.Permit {
		p, _ := s.Acquire(ctx)
		return p
	})
}

func contenders(t *testing.T, s *semaphore.Semaphore, n int) []semaphore.Contender {
	t.Helper()
	return suite.Await(t, n, s.Contenders)
}

// limits returns the nodes at path that say how many permits there are.
func limits(t testing.TB, c *protocol.Client, path string) (nodes []string) {
	t.Helper()
	s := suite.Session(t, c)
	require.NoError(t, s.Sync(t.Context(), path))
	children, _, err := s.Children(t.Context(), path)
	require.NoError(t, err)
	for _, name := range children {
		if strings.Contains(name, "-limit-") {
			nodes = append(nodes, name)
		}
	}
	return nodes
}

// A lease is a permit, for the suite of the locks.
type lease struct{ *semaphore.Permit }

func (l lease) Unlock(ctx context.Context) error { return l.Release(ctx) }

func leases(verb func(context.Context) (*semaphore.Permit, error)) func(context.Context) (suite.Lease, error) {
	return func(ctx context.Context) (suite.Lease, error) {
		p, err := verb(ctx)
		if err != nil {
			return nil, err
		}
		return lease{p}, nil
	}
}

// single returns a semaphore of one permit as a lock.
func single(c *protocol.Client, path string) suite.Locker {
	s := semaphore.New(c, path, 1)
	return suite.Locker{
		Lock:    leases(s.Acquire),
		TryLock: leases(s.TryAcquire),
		Block:   leases(s.Acquire),
		Do: func(ctx context.Context, fn func(context.Context, suite.Lease) error) error {
			return s.Do(ctx, func(ctx context.Context, p *semaphore.Permit) error { return fn(ctx, lease{p}) })
		},
		Contenders: func(ctx context.Context) (nodes []string, err error) {
			all, err := s.Contenders(ctx)
			for _, c := range all {
				nodes = append(nodes, c.Node)
			}
			return nodes, err
		},
		Break: s.Break,
	}
}
