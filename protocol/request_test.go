package protocol_test

import (
	"context"
	"encoding/binary"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/line"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

func maxPacket(bytes int) recipestest.Option {
	return recipestest.WithConfigFunc(func(cfg *embedded.Config) { cfg.MaxPacket = bytes })
}

func TestRequestLimitIsKeptBeforeAnythingIsSent(t *testing.T) {
	eachWith(t, suite.SmallRequests, maxPacket(64<<10), func(t *testing.T, srv *recipestest.Server) {
		root, link := srv.Root(t), srv.Link(t)
		c := link.Client(t, protocol.WithRequestLimit(65535))
		other := suite.Hold(t, c, root+"/other")
		s := suite.Session(t, c)
		big := line.Request{Kind: "lock-", Blockers: line.Exclusive, Data: make([]byte, 70_000)}
		// Don't count all packets: in real time the lease can be read again just then.
		writes := func() int {
			return link.Count(recipestest.OpCreate) + link.Count(recipestest.OpSetData) + link.Count(recipestest.OpMulti)
		}

		before := writes()

		for name, call := range map[string]func() error{
			"line":   func() error { _, err := suite.LineAt(c, root+"/fresh").Enter(suite.Lasting(t), big); return err },
			"data":   func() error { return other.SetData(suite.Lasting(t), big.Data) },
			"set":    func() error { _, err := s.Set(suite.Lasting(t), root, big.Data, -1); return err },
			"create": func() error { return s.Create(suite.Lasting(t), root+"/x", big.Data, 0) },
			"multi": func() error {
				_, err := s.Multi(suite.Lasting(t), &zk.SetDataRequest{Path: root, Data: big.Data, Version: -1})
				return err
			},
		} {
			require.ErrorIs(t, call(), protocol.ErrTooLarge, name)
		}

		require.Equal(t, before, writes())

		big.Data = big.Data[:60_000]
		g := suite.Got(suite.LineAt(c, root+"/fresh").Enter(suite.Lasting(t), big))(t)
		require.NoError(t, g.Release(suite.Lasting(t)))
		require.NoError(t, other.Release(suite.Lasting(t)))
	})
}

func TestRequestLimitMayBeAboveTheDefault(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		c := srv.Client(t, protocol.WithRequestLimit(3<<20))
		g, err := suite.LineAt(c, srv.Root(t)).Enter(suite.Lasting(t), line.Request{Kind: "lock-", Blockers: line.Exclusive, Data: make([]byte, 2<<20)})
		require.NoError(t, err)
		require.NoError(t, g.SetData(suite.Lasting(t), make([]byte, 3<<20-1000)))
		require.ErrorIs(t, g.SetData(suite.Lasting(t), make([]byte, 3<<20)), protocol.ErrTooLarge)
		require.NoError(t, g.Release(suite.Lasting(t)))
	}, maxPacket(4<<20))
}

// No request comes near the size that makes zk.Conn panic, and no request that a server with the
// defaults accepts is refused. (A user's own Multi of one exact size is beyond help: zk.Conn
// panics.)
func TestRequestsTooLargeForAnyServerAreNotSent(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		const limit = 1<<20 - 1
		root, link, data := srv.Root(t), srv.Link(t), make([]byte, 2<<20)
		suite.Keep(t, srv.Client(t), root)

		for name, request := range map[string]struct {
			op      recipestest.Op
			refused error
			call    func(c *zk.Conn, data []byte) error
		}{
			"create": {recipestest.OpCreate, protocol.ErrTooLarge, func(c *zk.Conn, data []byte) error {
				_, err := recipe.Create(c, root+"/x-", data, zk.FlagEphemeralSequential, zk.WorldACL(zk.PermAll))
				return err
			}},
			"set": {recipestest.OpSetData, protocol.ErrTooLarge, func(c *zk.Conn, data []byte) error {
				_, err := recipe.Set(c, root, data, -1)
				return err
			}},
			"multi": {recipestest.OpMulti, protocol.ErrTooLarge, func(c *zk.Conn, data []byte) error {
				_, err := recipe.Multi(c,
					&zk.CheckVersionRequest{Path: root, Version: -1},
					&zk.SetDataRequest{Path: root, Version: -1},
					&zk.CreateRequest{Path: root + "/y", Data: data, Acl: zk.DigestACL(zk.PermAll, "a", "b")},
					&zk.DeleteRequest{Path: root + "/y", Version: -1})
				return err
			}},
			"a user's set": {recipestest.OpSetData, zk.ErrShortBuffer, func(c *zk.Conn, data []byte) error {
				_, err := c.Set(root, data, -1)
				return err
			}},
		} {
			var last atomic.Int64 // size of the newest such request
			c := link.Client(t, suite.Writing(link, func(conn net.Conn, p []byte) (int, error) {
				if suite.OpOf(p) == request.op {
					last.Store(int64(binary.BigEndian.Uint32(p))) // p can be a piece of the frame
				}
				return conn.Write(p)
			}))
			conn := suite.Session(t, c).Conn()
			require.NoError(t, request.call(conn, data[:1000]), name)
			room := limit - (int(last.Load()) - 1000)
			before := link.Count(recipestest.OpConnect)

			require.NoError(t, request.call(conn, data[:room]), name)
			require.EqualValues(t, limit, last.Load(), name)
			for _, over := range []int{1, 2, 3, 4, 8, 100, 700} {
				require.ErrorIs(t, request.call(conn, data[:room+over]), request.refused, name)
			}

			require.Equal(t, before, link.Count(recipestest.OpConnect), "the connection was not cut")
			require.NoError(t, c.Close())
		}
	})
}

func TestACLCountsTowardsTheSize(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link := srv.Root(t)+"/line", srv.Link(t)
		acl := make([]zk.ACL, 5000)

		for i := range acl {
			acl[i] = zk.ACL{Perms: zk.PermAll, Scheme: "digest", ID: strings.Repeat("x", 200)}
		}

		c := link.Client(t, protocol.WithACL(acl))
		before := link.Packets()

		for _, try := range []bool{false, true} {
			_, err := suite.LineAt(c, path).Enter(context.Background(), line.Request{Kind: "lock-", Blockers: line.Exclusive, Try: try})
			require.ErrorIs(t, err, protocol.ErrTooLarge)
		}

		require.Equal(t, before, link.Packets())
	})
}
