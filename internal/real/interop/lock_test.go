package interop_test

import (
	"context"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/real/interop"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/recipestest/ensemble"
)

// A newcomer makes one contender of some library for the lock at path. The first function blocks
// until it has the lock.
type newcomer func(t *testing.T, srv *recipestest.Server, path string) (lock, unlock func(context.Context) error)

func ours(t *testing.T, srv *recipestest.Server, path string) (func(context.Context) error, func(context.Context) error) {
	m := lock.New(srv.Client(t), path)
	var l *lock.Lease
	return func(ctx context.Context) (err error) { l, err = m.Lock(ctx); return err },
		func(ctx context.Context) error { return l.Unlock(ctx) }
}

// lingers unlocks, and keeps its node until the next one in line comes.
func lingers(t *testing.T, srv *recipestest.Server, path string) (func(context.Context) error, func(context.Context) error) {
	m := lock.New(srv.Client(t), path, lock.WithLinger(time.Hour))
	var l *lock.Lease
	return func(ctx context.Context) (err error) { l, err = m.Lock(ctx); return err },
		func(ctx context.Context) error { return l.Unlock(ctx) }
}

func goZooKeeper(t *testing.T, srv *recipestest.Server, path string) (func(context.Context) error, func(context.Context) error) {
	conn, _, err := zk.Connect([]string{srv.ConnectString()}, 10*time.Second, zk.WithLogInfo(false), zk.WithDialer(srv.Dial))
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	l := zk.NewLock(conn, path, zk.WorldACL(zk.PermAll))
	return func(context.Context) error { return l.Lock() }, func(context.Context) error { return l.Unlock() }
}

// peer makes contenders in one process of another language, which acquire the lock by a verb.
func peer(p *interop.Peer, verb string) newcomer {
	start := inProcess(p)
	return func(_ *testing.T, _ *recipestest.Server, path string) (func(context.Context) error, func(context.Context) error) {
		return start(verb, path)
	}
}

func TestOtherLibrariesOnTheSamePathAreExcludedInOrder(t *testing.T) {
	t.Parallel()
	srv := ensemble.Real(t)
	t.Run("zk.Lock", func(t *testing.T) {
		t.Parallel()
		takeTurns(t, srv, ours, goZooKeeper)
	})

	t.Run("Curator", func(t *testing.T) {
		t.Parallel()
		takeTurns(t, srv, ours, peer(interop.Curator(t, srv.ConnectString()), "lock"))
	})

	t.Run("kazoo", func(t *testing.T) {
		t.Parallel()
		takeTurns(t, srv, ours, peer(interop.Kazoo(t, srv.ConnectString()), "lock"))
	})

	t.Run("zk.Lock and Curator", func(t *testing.T) {
		t.Parallel()
		takeTurns(t, srv, ours, goZooKeeper, peer(interop.Curator(t, srv.ConnectString()), "lock"))
	})

	t.Run("a lock that lingers", func(t *testing.T) {
		t.Parallel()
		takeTurns(t, srv, lingers, goZooKeeper, peer(interop.Curator(t, srv.ConnectString()), "lock"))
		takeTurns(t, srv, lingers, goZooKeeper, peer(interop.Kazoo(t, srv.ConnectString()), "lock"))
	})

	t.Run("WriteLock", func(t *testing.T) {
		t.Parallel()
		takeTurns(t, srv, ours, peer(interop.Curator(t, srv.ConnectString()), "writelock"))
	})
}

// takeTurns makes contenders of each library, alternately, join the line of one lock. They must be
// granted it in that order.
func takeTurns(t *testing.T, srv *recipestest.Server, libraries ...newcomer) {
	path := srv.Root(t) + "/fleet"
	const rounds = 3
	var contenders []contender
	for range rounds {
		for _, library := range libraries {
			lock, unlock := library(t, srv, path)
			contenders = append(contenders, contender{Lock: lock, Unlock: unlock})
		}
	}
	order := acquireInOrder(t, srv, path, contenders)
	require.Len(t, order, len(contenders))
	require.IsIncreasing(t, order)
}

func TestRevocationWorksBothWaysWithCurator(t *testing.T) {
	t.Parallel()
	srv := ensemble.Real(t)
	curator := interop.Curator(t, srv.ConnectString())
	c, path, ctx := srv.Client(t), srv.Root(t)+"/revoked", suite.Lasting(t)
	m := lock.New(c, path)

	curator.Do(t, "lockrevocable", "a", path)
	line, err := m.Contenders(ctx)
	require.NoError(t, err)
	require.NoError(t, m.Revoke(ctx, line[0].Node))
	curator.Do(t, "awaitrevoked", "a")
	curator.Do(t, "unlock", "a")

	l, err := m.Lock(ctx)
	require.NoError(t, err)
	revoked := l.Revoked()
	curator.Do(t, "revoke", "a", path, l.Node())
	suite.Wait(t, revoked)
	require.NoError(t, l.Unlock(ctx))
}
