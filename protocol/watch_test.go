package protocol_test

import (
	"context"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// What happens to a node after a transaction is no matter to that, although it may be heard of before anybody looks.
func TestWatchTellsWhatWasThereAtATransaction(t *testing.T) {
	each(t, func(t *testing.T, srv *recipestest.Server) {
		s, conn, root := session(t, srv.Client(t)), session(t, srv.Client(t)).Conn(), srv.Root(t)
		_, err := create(s, root, 0)(s.Conn())
		require.NoError(t, err)
		write := func() (zxid int64) {
			stat, err := protocol.Do(t.Context(), s, func(c *zk.Conn) (*zk.Stat, error) { return c.Set(root, nil, -1) })
			require.NoError(t, err)
			return stat.Mzxid
		}
		for _, becomes := range []string{"nothing", "another"} {
			path := root + "/" + becomes
			_, err := conn.Create(path, nil, 0, zk.WorldACL(zk.PermAll))
			require.NoError(t, err)
			watch := s.Watch(path)
			_, err = watch.Ready(t.Context())
			require.NoError(t, err)
			before := write()
			require.NoError(t, conn.Delete(path, -1))
			if becomes == "another" {
				_, err := conn.Create(path, nil, 0, zk.WorldACL(zk.PermAll))
				require.NoError(t, err)
			}
			wait(t, watch.Changed())
			after := write()

			same, err := watch.SameAt(t.Context(), before)
			require.NoError(t, err)
			require.True(t, same)
			same, err = watch.SameAt(t.Context(), after)
			require.NoError(t, err)
			require.False(t, same)
		}
	})
}

// What was found out about the first node is not forgotten when another one takes its place.
func TestWatchOfANodeThatWasReplacedIsNeverTheSameAgain(t *testing.T) {
	each(t, func(t *testing.T, srv *recipestest.Server) {
		s, conn, root := session(t, srv.Client(t)), session(t, srv.Client(t)).Conn(), srv.Root(t)
		path := root + "/x"
		_, err := create(s, root, 0)(s.Conn())
		require.NoError(t, err)
		make := func() {
			_, err := conn.Create(path, nil, 0, zk.WorldACL(zk.PermAll))
			require.NoError(t, err)
		}
		make()
		watch := s.Watch(path)
		_, err = watch.Ready(t.Context())
		require.NoError(t, err)
		different := func() {
			t.Helper()
			for range 3 {
				same, err := watch.Same(t.Context())
				require.NoError(t, err)
				require.False(t, same)
				same, err = watch.SameAt(t.Context(), 1<<62)
				require.NoError(t, err)
				require.False(t, same)
			}
		}

		require.NoError(t, conn.Delete(path, -1))
		wait(t, watch.Changed())
		different()

		make()
		different()
		require.NoError(t, conn.Delete(path, -1))
		wait(t, watch.Changed())
		same, err := watch.SameAt(t.Context(), 1)
		require.NoError(t, err)
		require.False(t, same)
	})
}

// A question that ctx has cut short says nothing about the node.
func TestWatchKnowsNothingAfterAQuestionWithoutAnswer(t *testing.T) {
	each(t, func(t *testing.T, srv *recipestest.Server) {
		link := srv.Link(t)
		s, conn, root := session(t, link.Client(t)), session(t, srv.Client(t)).Conn(), srv.Root(t)
		path := root + "/x"
		_, err := create(s, root, 0)(s.Conn())
		require.NoError(t, err)
		_, err = conn.Create(path, nil, 0, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
		watch := s.Watch(path)
		_, err = watch.Ready(t.Context())
		require.NoError(t, err)
		require.NoError(t, conn.Delete(path, -1))
		wait(t, watch.Changed())

		link.StallRequests()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = watch.Same(ctx)
		require.ErrorIs(t, err, context.Canceled)
		link.Heal()

		same, err := watch.Same(t.Context())
		require.NoError(t, err)
		require.False(t, same)
	})
}
