package interop_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/election"
	"github.com/zkrecipes/zkrecipes/internal/real/interop"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/recipestest/ensemble"
)

// Our candidates wait for a LeaderLatch that came before them. A LeaderLatch doesn't wait for our
// leader: it leads beside it.
func TestLeaderLatchLeadsBeforeAndBesideUs(t *testing.T) {
	t.Parallel()
	srv := ensemble.Real(t)
	path, curator, ctx := srv.Root(t)+"/leader", interop.Curator(t, srv.ConnectString()), suite.Lasting(t)
	e := election.New(srv.Client(t), path)

	// A LeaderLatch leads first, and our candidate waits for it.
	curator.Do(t, "latch", "a", path, "theirs")
	l := suite.Got(e.Leader(ctx))(t)
	require.Equal(t, "theirs", string(l.Value))
	won := suite.Later(func() *election.Term { term, _ := e.Campaign(ctx, []byte("ours")); return term })
	suite.Await(t, 2, e.Candidates)
	curator.Do(t, "unlatch", "a")
	term := suite.Wait(t, won)
	l = suite.Got(e.Leader(ctx))(t)
	require.Equal(t, "ours", string(l.Value))

	// A LeaderLatch that comes later leads at once. Our next candidate waits for it.
	curator.Do(t, "latch", "b", path, "beside us")
	require.NoError(t, term.Err())
	won = suite.Later(func() *election.Term { term, _ := e.Campaign(ctx, nil); return term })
	suite.Await(t, 3, e.Candidates)
	require.NoError(t, term.Resign(ctx))
	l = suite.Got(e.Leader(ctx))(t)
	require.Equal(t, "beside us", string(l.Value))
	require.Empty(t, won)
	curator.Do(t, "unlatch", "b")
	require.NoError(t, suite.Wait(t, won).Resign(ctx))
}
