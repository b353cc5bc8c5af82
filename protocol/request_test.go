package protocol_test

import (
	"context"
	"encoding/binary"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/line"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

// eachSmall runs a test on servers with a jute.maxbuffer of 64 KiB.
func eachSmall(t *testing.T, test func(t *testing.T, srv *recipestest.Server)) {
	t.Helper()
	t.Parallel()
	t.Run("embedded", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			test(t, recipestest.Start(t, recipestest.WithInMemory(), recipestest.WithConfigFunc(func(cfg *embedded.Config) { cfg.MaxPacket = 64 << 10 })))
		})
	})
	t.Run("real", func(t *testing.T) {
		t.Parallel()
		test(t, suite.RealWith(t, suite.SmallRequests))
	})
}

func TestRequestLimitIsKeptBeforeAnythingIsSent(t *testing.T) {
	eachSmall(t, func(t *testing.T, srv *recipestest.Server) {
		root, link := srv.Root(t), srv.Link(t)
		c := link.Client(t, protocol.WithRequestLimit(65535))
		other := hold(t, c, root+"/other")
		s := session(t, c)
		big := line.Request{Kind: "lock-", Blockers: line.Exclusive, Data: make([]byte, 70_000)}
		// Not all packets: in real time the lease may just be read again.
		writes := func() int {
			return link.Count(recipestest.OpCreate) + link.Count(recipestest.OpSetData) + link.Count(recipestest.OpMulti)
		}
		before := writes()
		for name, call := range map[string]func() error{
			"line":   func() error { _, err := lineAt(c, root+"/fresh").Enter(lasting(t), big); return err },
			"data":   func() error { return other.SetData(lasting(t), big.Data) },
			"set":    func() error { _, err := s.Set(lasting(t), root, big.Data, -1); return err },
			"create": func() error { return s.Create(lasting(t), root+"/x", big.Data, 0) },
			"multi": func() error {
				_, err := s.Multi(lasting(t), &zk.SetDataRequest{Path: root, Data: big.Data, Version: -1})
				return err
			},
		} {
			require.ErrorIs(t, call(), protocol.ErrTooLarge, name)
		}
		require.Equal(t, before, writes())

		big.Data = big.Data[:60_000]
		g, err := lineAt(c, root+"/fresh").Enter(lasting(t), big)
		require.NoError(t, err)
		require.NoError(t, g.Release(lasting(t)))
		require.NoError(t, other.Release(lasting(t)))
	})
}

func TestRequestLimitMayBeAboveTheDefault(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		root := srv.Root(t)
		big := recipestest.Start(t, recipestest.WithInMemory(), recipestest.WithConfigFunc(func(cfg *embedded.Config) { cfg.MaxPacket = 4 << 20 }))
		c := big.Client(t, protocol.WithRequestLimit(3<<20))
		g, err := lineAt(c, root).Enter(lasting(t), line.Request{Kind: "lock-", Blockers: line.Exclusive, Data: make([]byte, 2<<20)})
		require.NoError(t, err)
		require.NoError(t, g.SetData(lasting(t), make([]byte, 3<<20-1000)))
		require.ErrorIs(t, g.SetData(lasting(t), make([]byte, 3<<20)), protocol.ErrTooLarge)
		require.NoError(t, g.Release(lasting(t)))

		for _, bytes := range []int{-1, 0, 1023, 1 << 30} {
			_, err := protocol.Connect(lasting(t), srv.ConnectString(), protocol.WithRequestLimit(bytes))
			require.ErrorContains(t, err, "request limit")
		}
	})
}

// The client does not know what the server accepts. It never says that nothing was done.
func TestRequestThatIsNeverAnsweredIsUncertain(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		root, link := srv.Root(t), srv.Link(t)
		c := link.Client(t)
		s := session(t, c)
		g := hold(t, c, root+"/lock")
		_, err := s.EnsurePath(lasting(t), root+"/x")
		require.NoError(t, err)
		data := make([]byte, 40<<10)
		for name, call := range map[string]func(ctx context.Context) error{
			"set":    func(ctx context.Context) error { _, err := s.Set(ctx, root+"/x", data, -1); return err },
			"create": func(ctx context.Context) error { return s.Create(ctx, root+"/y", data, 0) },
			"delete": func(ctx context.Context) error { return s.Delete(ctx, root+"/x", 999) },
			"multi": func(ctx context.Context) error {
				_, err := s.Multi(ctx, &zk.SetDataRequest{Path: root + "/x", Data: data, Version: -1})
				return err
			},
		} {
			link.LoseReply(recipestest.OpAny, 1000)
			err := call(within(t, time.Second))
			require.ErrorIs(t, err, protocol.ErrUncertain, name)
			require.ErrorIs(t, err, context.DeadlineExceeded, name)
			require.NotErrorIs(t, err, protocol.ErrTooLarge, name)
			link.LoseReply(recipestest.OpAny, 0)
			require.NoError(t, s.Sync(lasting(t), root))
		}
		require.NoError(t, g.Release(lasting(t)))
	})
}

// Two breaks of the connection in a row, such as an ensemble has that elects a leader twice, are no
// limit of the server.
func TestLostRepliesAreNoLimit(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		root, link := srv.Root(t), srv.Link(t)
		c := link.Client(t)
		s := session(t, c)
		_, err := s.EnsurePath(lasting(t), root+"/x")
		require.NoError(t, err)
		link.LoseReply(recipestest.OpSetData, 2)
		_, err = s.Set(lasting(t), root+"/x", make([]byte, 40<<10), -1)
		require.NoError(t, err)

		large := line.Request{Kind: "lock-", Blockers: line.Exclusive, Data: make([]byte, 40<<10)}
		dialer, creates := breaking(link, recipestest.OpCreate)
		other := link.Client(t, dialer)
		creates.Store(3)
		g, err := lineAt(other, root+"/line").Enter(lasting(t), large)
		require.NoError(t, err)
		require.NoError(t, g.Release(lasting(t)))
		require.NoError(t, other.Close())
	})
}

// sizes is a way through link that notes the sizes of requests of a kind.
func sizes(link *recipestest.Link, op recipestest.Op) (protocol.ConnectOption, *atomic.Int64) {
	last := new(atomic.Int64)
	return protocol.WithDialer(func(network, address string, timeout time.Duration) (net.Conn, error) {
		c, err := link.Dial(network, address, timeout)
		if err != nil {
			return nil, err
		}
		return &sizingConn{c, op, last}, nil
	}), last
}

type sizingConn struct {
	net.Conn
	op   recipestest.Op
	last *atomic.Int64
}

func (c *sizingConn) Write(p []byte) (int, error) {
	if len(p) >= 12 && recipestest.Op(binary.BigEndian.Uint32(p[8:])) == c.op {
		c.last.Store(int64(binary.BigEndian.Uint32(p))) // p may be a piece of the frame
	}
	return c.Conn.Write(p)
}

// No request comes near the one size that makes zk.Conn panic, and none that a server with the
// defaults takes is refused.
func TestRequestsTooLargeForAnyServerAreNotSent(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		root, link := srv.Root(t), srv.Link(t)
		for op, call := range map[recipestest.Op]func(c *zk.Conn, node string, data []byte) error{
			recipestest.OpCreate: func(c *zk.Conn, node string, data []byte) error {
				_, err := recipe.Create(c, node+"/x-", data, zk.FlagEphemeralSequential, zk.WorldACL(zk.PermAll))
				return err
			},
			recipestest.OpSetData: func(c *zk.Conn, node string, data []byte) error {
				_, err := recipe.Set(c, node, data, -1)
				return err
			},
			recipestest.OpMulti: func(c *zk.Conn, node string, data []byte) error {
				_, err := recipe.Multi(c,
					&zk.CheckVersionRequest{Path: node, Version: -1},
					&zk.SetDataRequest{Path: node, Version: -1},
					&zk.CreateRequest{Path: node + "/y", Data: data, Acl: zk.DigestACL(zk.PermAll, "a", "b")},
					&zk.DeleteRequest{Path: node + "/y", Version: -1})
				return err
			},
		} {
			dialer, last := sizes(link, op)
			c := link.Client(t, dialer)
			s := session(t, c)
			_, err := s.EnsurePath(lasting(t), root)
			require.NoError(t, err)
			require.NoError(t, call(s.Conn(), s.Path(root), make([]byte, 1000)))
			const limit = 1<<20 - 1
			room := limit - (int(last.Load()) - 1000)
			before := link.Count(recipestest.OpConnect)

			require.NoError(t, call(s.Conn(), s.Path(root), make([]byte, room)))
			require.EqualValues(t, limit, last.Load())
			for over := 1; over < 700; over++ {
				require.ErrorIs(t, call(s.Conn(), s.Path(root), make([]byte, room+over)), protocol.ErrTooLarge)
			}

			require.Equal(t, before, link.Count(recipestest.OpConnect))
			require.NoError(t, c.Close())
		}
	})
}

func TestACLCountsTowardsTheSize(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link := srv.Root(t)+"/line", srv.Link(t)
		acl := make([]zk.ACL, 5000)
		for i := range acl {
			acl[i] = zk.ACL{Perms: zk.PermAll, Scheme: "digest", ID: strings.Repeat("x", 200)}
		}
		c := link.Client(t, protocol.WithACL(acl))
		before := link.Packets()

		for _, try := range []bool{false, true} {
			_, err := lineAt(c, path).Enter(context.Background(), line.Request{Kind: "lock-", Blockers: line.Exclusive, Try: try})
			require.ErrorIs(t, err, protocol.ErrTooLarge)
		}

		require.Equal(t, before, link.Packets())
	})
}
