package semaphore_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
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
		require.NoError(t, p.Release(suite.Lasting(t)))
	}
}

func later(ctx context.Context, s *semaphore.Semaphore) <-chan *semaphore.Permit {
	return suite.Later(func() *semaphore.Permit { p, _ := s.Acquire(ctx); return p })
}

// requirePermits requires that n permits are free at the semaphore's path.
func requirePermits(t testing.TB, n int, s *semaphore.Semaphore) {
	t.Helper()
	var all []*semaphore.Permit
	for {
		p, err := s.TryAcquire(suite.Lasting(t))
		if errors.Is(err, semaphore.ErrNoPermit) {
			break
		}
		require.NoError(t, err)
		all = append(all, p)
	}
	require.Len(t, all, n)
	release(t, all...)
}
