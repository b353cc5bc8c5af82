package recipestest_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

// lasting grants sessions that last on a machine that computes.
var lasting = recipestest.WithConfigFunc(func(c *embedded.Config) { c.MaxSessionTimeout = 40 * time.Second })

// withFollowers runs a test with three followers, over TCP and in memory.
func withFollowers(t *testing.T, test func(t *testing.T, s *recipestest.Server)) {
	t.Helper()
	t.Parallel()
	t.Run("tcp", func(t *testing.T) {
		t.Parallel()
		test(t, recipestest.Start(t, lasting, recipestest.WithFollowers(3)))
	})
	t.Run("tls", func(t *testing.T) {
		t.Parallel()
		test(t, recipestest.Start(t, lasting, recipestest.WithFollowers(3), recipestest.WithTLS()))
	})
	t.Run("memory", func(t *testing.T) {
		t.Parallel()
		recipestest.Bubble(t, test, recipestest.WithFollowers(3))
	})
}

// leaveOne stops all followers but one, one after the other.
func leaveOne(t *testing.T, s *recipestest.Server, left int) {
	t.Helper()
	followers := s.Followers()
	require.NoError(t, followers[left].Resume())
	for i, f := range followers {
		if i != left {
			f.Stop()
		}
	}
}

// A link leads to the follower that its client dials.
func TestClientsGoOnAtTheFollowerThatIsLeft(t *testing.T) {
	withFollowers(t, func(t *testing.T, s *recipestest.Server) {
		require.Len(t, strings.Split(s.ConnectString(), ","), 3)
		root, conn := s.Root(t), s.Conn(t)
		id := conn.SessionID()
		patient := protocol.WithSessionTimeout(40 * time.Second) // on a machine that computes
		clients := map[string]*protocol.Client{"direct": s.Client(t, patient), "link": s.Link(t).Client(t, patient)}
		leases := make(map[string]*lock.Lease)
		for name, client := range clients {
			leases[name] = suite.Got(lock.New(client, root+"/"+name).Lock(t.Context()))(t)
		}

		for left := range 3 {
			leaveOne(t, s, left)
			for name, client := range clients {
				session := suite.Got(recipe.SessionOf(t.Context(), client))(t)
				require.NoError(t, session.Sync(t.Context(), root))
				require.NoError(t, leases[name].Err())
			}
			requireBack(t, conn)
			require.Equal(t, id, conn.SessionID())
		}
		for _, lease := range leases {
			require.NoError(t, lease.Unlock(t.Context()))
		}
	})
}

// A test may leave its followers in any state: they are made whole before the checks.
func TestFollowersAreMadeWholeForTheChecks(t *testing.T) {
	withFollowers(t, func(t *testing.T, s *recipestest.Server) {
		client := s.Client(t)
		session := suite.Got(recipe.SessionOf(t.Context(), client))(t)
		suite.Got(session.EnsurePath(t.Context(), s.Root(t)+"/left"))(t)

		followers := s.Followers()
		followers[0].Stop()
		followers[1].Isolate()
		followers[2].Lag(time.Hour)
	})
}

func TestFollowersThatCannotBe(t *testing.T) {
	t.Parallel()
	for want, opts := range map[string][]recipestest.Option{
		"a follower at least, got 0": {recipestest.WithFollowers(0)},
		"cannot be combined":         {recipestest.WithFollowers(2), recipestest.Lagging(time.Second)},
		"lag must not be negative":   {recipestest.Lagging(-1)},
	} {
		failed := run(t, func(tb testing.TB) { recipestest.Start(tb, opts...) })
		require.Len(t, failed.errors, 1)
		require.Contains(t, failed.errors[0], want)
	}
}
