package protocol_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

// withoutContainers runs a test on a server that is like one of ZooKeeper 3.4.
func withoutContainers(t *testing.T, test func(t *testing.T, srv *recipestest.Server)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		test(t, recipestest.Start(t, recipestest.WithInMemory(), recipestest.WithConfigFunc(func(cfg *embedded.Config) { cfg.NoContainers = true })))
	})
}

func TestServersWithoutContainersAreAskedOnce(t *testing.T) {
	// asked returns how often a client asks for containers in two sessions, and how often it
	// connects again.
	asked := func(t *testing.T, srv *recipestest.Server) (requests, connects int) {
		root, link := srv.Root(t), srv.Link(t)
		c := link.Client(t)
		before := link.Count(recipestest.OpConnect)
		for _, path := range []string{root + "/a/b/c", root + "/d/e/f"} {
			require.NoError(t, hold(t, c, path).Release(lasting(t)))
		}
		return link.Count(recipestest.OpCreateContainer), link.Count(recipestest.OpConnect) - before
	}

	t.Run("embedded", func(t *testing.T) {
		withoutContainers(t, func(t *testing.T, srv *recipestest.Server) {
			var requests, connects int
			require.Less(t, took(func() { requests, connects = asked(t, srv) }), 200*time.Millisecond)
			require.Equal(t, 1, requests)
			require.LessOrEqual(t, connects, 1)
		})
	})

	t.Run("real", func(t *testing.T) {
		srv := suite.Real(t)
		if suite.Has(t, srv, suite.Containers) {
			t.Skipf("ZooKeeper %s has container nodes", srv.Version())
		}
		requests, connects := asked(t, srv)
		require.LessOrEqual(t, requests, 2, "the connection may end before the answer is read")
		require.LessOrEqual(t, connects, requests)
	})
}

// A connection that breaks says nothing, however often.
func TestParentsAreContainersAfterCuts(t *testing.T) {
	each(t, func(t *testing.T, srv *recipestest.Server) {
		suite.Needs(t, srv, suite.Containers)
		root, link := srv.Root(t), srv.Link(t)
		c := link.Client(t)
		s := session(t, c)
		for _, path := range []string{root, root + "/a"} {
			link.LoseReply(recipestest.OpCreateContainer, 3)
			_, err := s.EnsurePath(lasting(t), path)
			require.NoError(t, err)
		}
		before := link.Count(recipestest.OpCreateContainer)
		_, err := s.EnsurePath(lasting(t), root+"/b")
		require.NoError(t, err)
		require.Greater(t, link.Count(recipestest.OpCreateContainer), before)
	})
}
