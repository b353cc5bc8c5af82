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

// ours makes contenders of a lock.Mutex.
func ours(opts ...lock.Option) newcomer {
	return func(t *testing.T, srv *recipestest.Server, path string, _ bool) contender {
		return of(lock.New(srv.Client(t), path, opts...).Lock, false)
	}
}

func goZooKeeper(t *testing.T, srv *recipestest.Server, path string, _ bool) contender {
	conn, _, err := zk.Connect([]string{srv.ConnectString()}, 10*time.Second, zk.WithLogInfo(false), zk.WithDialer(srv.Dial))
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	l := zk.NewLock(conn, path, zk.WorldACL(zk.PermAll))
	return contender{Lock: func(context.Context) error { return l.Lock() }, Unlock: func(context.Context) error { return l.Unlock() }}
}

func TestOtherLibrariesOnTheSamePathAreExcludedInOrder(t *testing.T) {
	t.Parallel()
	srv := ensemble.Real(t)
	curator := func(t *testing.T, verb string) newcomer {
		return peer(interop.Curator(t, srv.ConnectString()), verb, "")
	}
	kazoo := func(t *testing.T) newcomer { return peer(interop.Kazoo(t, srv.ConnectString()), "lock", "") }
	// One that lingers unlocks, and keeps its node until the next one in line comes.
	lingers := ours(lock.WithLinger(time.Hour))
	for name, libraries := range map[string]func(t *testing.T) []newcomer{
		"zk.Lock":             func(*testing.T) []newcomer { return []newcomer{ours(), goZooKeeper} },
		"Curator":             func(t *testing.T) []newcomer { return []newcomer{ours(), curator(t, "lock")} },
		"kazoo":               func(t *testing.T) []newcomer { return []newcomer{ours(), kazoo(t)} },
		"zk.Lock and Curator": func(t *testing.T) []newcomer { return []newcomer{ours(), goZooKeeper, curator(t, "lock")} },
		"lingers, Curator":    func(t *testing.T) []newcomer { return []newcomer{lingers, goZooKeeper, curator(t, "lock")} },
		"lingers, kazoo":      func(t *testing.T) []newcomer { return []newcomer{lingers, goZooKeeper, kazoo(t)} },
		"WriteLock":           func(t *testing.T) []newcomer { return []newcomer{ours(), curator(t, "writelock")} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			takeTurns(t, srv, libraries(t))
		})
	}
}

// takeTurns makes contenders of each library, alternately, join the line of one lock.
func takeTurns(t *testing.T, srv *recipestest.Server, libraries []newcomer) {
	path := srv.Root(t) + "/fleet"
	const rounds = 3
	var contenders []contender
	for range rounds {
		for _, library := range libraries {
			contenders = append(contenders, library(t, srv, path, true))
		}
	}
	acquireInOrder(t, srv, path, contenders)
}

func TestRevocationWorksBothWaysWithCurator(t *testing.T) {
	t.Parallel()
	srv := ensemble.Real(t)
	curator := interop.Curator(t, srv.ConnectString())
	c, path, ctx := srv.Client(t), srv.Root(t)+"/revoked", suite.Lasting(t)
	m := lock.New(c, path)

	// We revoke Curator's lock.
	curator.Do(t, "lockrevocable", "a", path)
	line := suite.Got(m.Contenders(ctx))(t)
	require.NoError(t, m.Revoke(ctx, line[0].Node))
	curator.Do(t, "awaitrevoked", "a")
	curator.Do(t, "unlock", "a")

	// Curator revokes ours.
	l := suite.Got(m.Lock(ctx))(t)
	revoked := l.Revoked()
	curator.Do(t, "revoke", "a", path, l.Node())
	suite.Wait(t, revoked)
	require.NoError(t, l.Unlock(ctx))
}
