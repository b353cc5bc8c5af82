package protocol_test

import (
	"encoding/binary"
	"net"
	"sync/atomic"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// Since 3.9, events carry the zxid of their transaction. (A link checks that no handshake claims
// less than was delivered.)
func TestNextConnectionClaimsTheZxidOfAnEvent(t *testing.T) {
	suite.InBothVersions(t, func(t *testing.T, version string, srv *recipestest.Server) {
		link, other := srv.Link(t), suite.Session(t, srv.Client(t))
		path := srv.Root(t)
		require.NoError(t, other.Create(t.Context(), path, nil, 0))
		var claimed atomic.Int64 // by the newest handshake
		c := link.Client(t, suite.Writing(link, func(conn net.Conn, p []byte) (int, error) {
			if binary.BigEndian.Uint32(p[4:]) == 0 { // a handshake, which has no xid
				claimed.Store(int64(binary.BigEndian.Uint64(p[8:])))
			}
			return conn.Write(p)
		}))
		suite.Settle() // zk.Conn can set very early watches twice
		_, read, events, err := suite.Session(t, c).Conn().GetW(path)
		require.NoError(t, err)

		changed := suite.Got(other.Conn().Set(path, nil, -1))(t)
		require.Equal(t, zk.EventNodeDataChanged, suite.Wait(t, events).Type)
		suite.Reconnect(t, link, c)

		if version == "3.8" {
			require.GreaterOrEqual(t, claimed.Load(), read.Mzxid)
			require.Less(t, claimed.Load(), changed.Mzxid)
		} else {
			require.Equal(t, changed.Mzxid, claimed.Load())
		}
	})
}

// A node changes while the client is away. Over the next connection an event of a later change
// arrives before the watch of that node is set again, and then that connection breaks, too.
func TestEventBeforeWatchesAreSetAgainHidesNoEarlierOne(t *testing.T) {
	suite.InBothVersions(t, func(t *testing.T, _ string, srv *recipestest.Server) {
		root, link, other := srv.Root(t), srv.Link(t), suite.Session(t, srv.Client(t)).Conn()

		for _, path := range []string{root, root + "/first", root + "/second"} {
			suite.Got(other.Create(path, nil, 0, zk.WorldACL(zk.PermAll)))(t)
		}

		gate := &suite.Gate{Op: recipestest.OpSetWatches}
		c := link.Client(t, gate.Option(link))
		conn := suite.Session(t, c).Conn()
		first := suite.WatchAt(t, conn.GetW, root+"/first")

		gate.Shut()
		link.Cut()
		suite.Got(other.Set(root+"/first", nil, -1))(t)
		suite.Reconnect(t, link, c)
		second := suite.WatchAt(t, conn.GetW, root+"/second")
		suite.Got(other.Set(root+"/second", nil, -1))(t)
		require.Equal(t, zk.EventNodeDataChanged, suite.Wait(t, second).Type)
		require.Empty(t, first)

		link.Cut()
		gate.Open()
		link.Heal()
		require.Equal(t, zk.EventNodeDataChanged, suite.Wait(t, first).Type)
	})
}
