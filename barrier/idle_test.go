package barrier_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/barrier"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// A waiter costs its session's pings and nothing else.
func TestWaiterSendsNothing(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link, other := srv.Root(t)+"/b", srv.Link(t), srv.Client(t)
		require.NoError(t, barrier.New(other, path).Set(t.Context()))
		c := link.Client(t)
		s := suite.Session(t, c)
		waited := suite.Later(func() error { return barrier.New(c, path).Wait(t.Context()) })

		synctest.Wait()
		requests, pings := link.Count(recipestest.OpAny), link.Count(recipestest.OpPing)
		time.Sleep(10 * time.Minute)
		require.Equal(t, requests, link.Count(recipestest.OpAny))
		require.Greater(t, link.Count(recipestest.OpPing), pings+int(10*time.Minute/s.Timeout()))
		require.Empty(t, waited)

		require.NoError(t, barrier.New(other, path).Remove(t.Context()))
		require.NoError(t, suite.Wait(t, waited))
	})
}
