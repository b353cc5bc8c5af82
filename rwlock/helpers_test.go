package rwlock_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/rwlock"
)

func TestMain(m *testing.M) { suite.Main(m) }

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

// enter makes v wait for the lock in the background, and returns when the watcher sees it as the
// n-th in line.
func enter(t *testing.T, v verb, m, watcher *rwlock.RWMutex, n int) <-chan *rwlock.Lease {
	t.Helper()
	lease := suite.Later(func() *rwlock.Lease { l, _ := v(m, t.Context()); return l })
	suite.Await(t, n, watcher.Contenders)
	return lease
}

// granted returns a lease that is granted now, and is held.
func granted(t *testing.T, lease <-chan *rwlock.Lease) *rwlock.Lease {
	t.Helper()
	l := suite.Wait(t, lease)
	require.NotNil(t, l)
	require.NoError(t, l.Err())
	return l
}
