package protocol_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipestest"
)

// Waiters of one session on one node share a watch. A blip, and a minute at rest, cost one request.
func TestWaitersOnOneNodeAskOnce(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		const n = 1000
		link, root := srv.Link(t), srv.Root(t)
		s := session(t, link.Client(t))
		_, err := s.EnsurePath(lasting(t), root+"/x")
		require.NoError(t, err)
		done := make(chan error, n)
		for range n {
			go func() {
				_, err := s.WaitNode(t.Context(), root+"/x", func(*zk.Stat) bool { return false })
				done <- err
			}()
		}
		time.Sleep(time.Second)
		asked := func() int { synctest.Wait(); return link.Count(recipestest.OpExists) }
		before := asked()
		link.Cut()
		link.Heal()
		time.Sleep(5 * time.Second)
		require.Equal(t, before+1, asked())
		time.Sleep(10 * time.Minute)
		require.LessOrEqual(t, asked(), before+12)
		require.Greater(t, asked(), before+9)
		require.NoError(t, session(t, srv.Client(t)).Delete(lasting(t), root+"/x", -1))
		for range n {
			require.NoError(t, <-done)
		}
	})
}
