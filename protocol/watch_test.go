package protocol_test

import (
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
