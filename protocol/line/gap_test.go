package line_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// A session that has held something costs no more than one that has not.
func TestSessionThatHoldsNothingAnyMoreSendsNothing(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link := srv.Link(t)
		c := link.Client(t)
		g, err := lineAt(c, srv.Root(t)+"/x").Enter(suite.Lasting(t), request)
		require.NoError(t, err)
		release(t, g)
		time.Sleep(time.Minute)
		requests := link.Count(recipestest.OpAny)
		time.Sleep(10 * time.Minute)
		require.Equal(t, requests, link.Count(recipestest.OpAny))
	})
}

func TestContendersOfALongLine(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		c, path := srv.Client(t), srv.Root(t)+"/x"
		const n = 50
		var nodes []string
		for range n {
			nodes = append(nodes, foreign(t, c, path, curatorMutex))
		}
		all, err := lineAt(c, path).Contenders(suite.Lasting(t))
		require.NoError(t, err)
		require.Len(t, all, n)
		for _, node := range nodes {
			remove(t, c, node)
		}
	})
}

// The session of a WriteLock is a number, which may be short.
func TestWriteLockOfAShortSessionIsInLine(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		c, path := srv.Client(t), srv.Root(t)+"/x"
		node := foreign(t, c, path, "x-5-")
		all, err := lineAt(c, path).Contenders(suite.Lasting(t))
		require.NoError(t, err)
		require.Len(t, all, 1)
		remove(t, c, node)
	})
}

// A contender waits for the nearest contender, ours or another library's.
func TestContenderBehindOursAndAnotherLibrarysWaitsForBoth(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		c, path := srv.Client(t), srv.Root(t)+"/x"
		ctx := suite.Lasting(t)
		g, err := lineAt(c, path).Enter(ctx, request)
		require.NoError(t, err)
		other := foreign(t, c, path, kazooWriter)
		waiting := suite.Later(func() func() {
			give, err := mutex(ctx, c, path)
			require.NoError(t, err)
			return func() { require.NoError(t, give(ctx)) }
		})
		time.Sleep(time.Second)
		release(t, g)
		time.Sleep(time.Second)
		require.Empty(t, waiting)
		remove(t, c, other)
		suite.Wait(t, waiting)()
	})
}
