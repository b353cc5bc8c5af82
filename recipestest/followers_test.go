package recipestest_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// withFollowers runs a test with three followers, over TCP and in memory.
func withFollowers(t *testing.T, test func(t *testing.T, s *recipestest.Server)) {
	t.Helper()
	t.Parallel()
	t.Run("tcp", func(t *testing.T) {
		t.Parallel()
		test(t, recipestest.Start(t, recipestest.WithFollowers(3)))
	})
	t.Run("tls", func(t *testing.T) {
		t.Parallel()
		test(t, recipestest.Start(t, recipestest.WithFollowers(3), recipestest.WithTLS()))
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

func TestClientsGoOnAtTheFollowerThatIsLeft(t *testing.T) {
	withFollowers(t, func(t *testing.T, s *recipestest.Server) {
		require.Len(t, strings.Split(s.ConnectString(), ","), 3)
		path := s.Root(t) + "/lock"
		client, conn := s.Client(t), s.Conn(t)
		lease, err := lock.New(client, path).Lock(t.Context())
		require.NoError(t, err)
		id := conn.SessionID()

		for left := range 3 {
			leaveOne(t, s, left)

			session, err := recipe.SessionOf(t.Context(), client)
			require.NoError(t, err)
			require.NoError(t, session.Sync(t.Context(), path))
			require.NoError(t, lease.Err())
			retried(t, func() error {
				_, _, err := conn.Children(path)
				return err
			})
			require.Equal(t, id, conn.SessionID())
		}
		require.NoError(t, lease.Unlock(t.Context()))
	})
}

// retried makes a plain client's request until it is answered. The errors of a broken connection
// are of many kinds.
func retried(t *testing.T, do func() error) {
	t.Helper()
	require.Eventually(t, func() bool { return do() == nil }, time.Minute, time.Millisecond)
}

func TestLinkLeadsToTheFollowerThatItsClientDials(t *testing.T) {
	withFollowers(t, func(t *testing.T, s *recipestest.Server) {
		link := s.Link(t)
		client := link.Client(t)
		lease, err := lock.New(client, s.Root(t)+"/lock").Lock(t.Context())
		require.NoError(t, err)

		for left := range 3 {
			link.Cut()
			leaveOne(t, s, left)
			link.Heal()
			session, err := recipe.SessionOf(t.Context(), client)
			require.NoError(t, err)
			require.NoError(t, session.Sync(t.Context(), "/"))
		}
		require.NoError(t, lease.Unlock(t.Context()))
	})
}

// A holder at an isolated follower has its pings answered, and yet leaves it in time.
func TestHolderLeavesAnIsolatedFollowerInTime(t *testing.T) {
	t.Parallel()
	recipestest.Bubble(t, func(t *testing.T, s *recipestest.Server) {
		client := s.Client(t)
		lease, err := lock.New(client, s.Root(t)+"/lock").Lock(t.Context())
		require.NoError(t, err)

		for isolated := range 3 {
			s.Followers()[isolated].Isolate()
			time.Sleep(time.Minute)
			require.NoError(t, lease.Err())
			s.Followers()[isolated].Rejoin()
		}
		synctest.Wait()
		require.NoError(t, lease.Unlock(t.Context()))
	}, recipestest.WithFollowers(3))
}

// A test may leave its followers in any state: they are made whole before the checks.
func TestFollowersAreMadeWholeForTheChecks(t *testing.T) {
	withFollowers(t, func(t *testing.T, s *recipestest.Server) {
		client := s.Client(t)
		session, err := recipe.SessionOf(t.Context(), client)
		require.NoError(t, err)
		_, err = session.EnsurePath(t.Context(), s.Root(t)+"/left")
		require.NoError(t, err)

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
	} {
		failed := run(t, func(tb testing.TB) { recipestest.Start(tb, opts...) })
		require.Len(t, failed.errors, 1)
		require.Contains(t, failed.errors[0], want)
	}
}
