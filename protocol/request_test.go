package protocol_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/line"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
	"github.com/zkrecipes/zkrecipes/recipestest/ensemble"
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
		if testing.Short() {
			t.Skip("starts a server of its own")
		}
		cluster := ensemble.Start(t, 1, ensemble.WithJVMFlags("-Djute.maxbuffer=65536"))
		test(t, recipestest.Attach(t, cluster.ConnectString()))
	})
}

func TestRequestThatThisServerRefusesCostsTwoConnections(t *testing.T) {
	eachSmall(t, func(t *testing.T, srv *recipestest.Server) {
		root, link := srv.Root(t), srv.Link(t)
		c := link.Client(t)
		other := hold(t, c, root+"/other")
		fresh, used := root+"/fresh", root+"/used"
		require.NoError(t, hold(t, c, used).Release(lasting(t)))
		big := line.Request{Kind: "lock-", Blockers: line.Exclusive, Data: make([]byte, 70_000)}
		for name, call := range map[string]func() error{
			"fresh": func() error { _, err := lineAt(c, fresh).Enter(lasting(t), big); return err },
			"used":  func() error { _, err := lineAt(c, used).Enter(lasting(t), big); return err },
			"data":  func() error { return other.SetData(lasting(t), big.Data) },
			"do": func() error {
				s := session(t, c)
				_, err := protocol.Do(lasting(t), s, func(c *zk.Conn) (*zk.Stat, error) {
					return protocol.Set(c, s.Path(used), big.Data, -1)
				})
				return err
			},
		} {
			require.NoError(t, session(t, c).Sync(lasting(t), root)) // connected again
			before := link.Count(recipestest.OpConnect)

			err := call()

			require.ErrorIs(t, err, protocol.ErrTooLarge, name)
			require.ErrorContains(t, err, "jute.maxbuffer", name)
			require.LessOrEqual(t, link.Count(recipestest.OpConnect)-before, 2, name)
		}
		require.NoError(t, other.Err())

		// A request that fits goes on as ever, and so does the next one that does not.
		big.Data = big.Data[:60_000]
		g, err := lineAt(c, used).Enter(lasting(t), big)
		require.NoError(t, err)
		require.NoError(t, g.Release(lasting(t)))
		require.NoError(t, other.Release(lasting(t)))
	})
}

// Whose request the server refuses must not be guessed.
func TestRefusalCountsForItsOwnRequestOnly(t *testing.T) {
	eachSmall(t, func(t *testing.T, srv *recipestest.Server) {
		root, link := srv.Root(t), srv.Link(t)
		c := link.Client(t)
		small, big := line.Request{Kind: "lock-", Blockers: line.Exclusive, Data: make([]byte, 50_000)}, line.Request{Kind: "lock-", Blockers: line.Exclusive, Data: make([]byte, 70_000)}
		link.Delay(5 * time.Millisecond) // so that they are under way together
		stop := make(chan struct{})
		refused := later(func() error {
			for {
				_, err := lineAt(c, root+"/big").Enter(lasting(t), big)
				select {
				case <-stop:
					return err
				case <-t.Context().Done():
					return err
				default:
				}
			}
		})
		var others []<-chan error
		for i := range 4 {
			others = append(others, later(func() error {
				for range 5 {
					g, err := lineAt(c, fmt.Sprintf("%s/small-%d", root, i)).Enter(lasting(t), small)
					if err != nil {
						return err
					}
					if err := g.Release(lasting(t)); err != nil {
						return err
					}
				}
				return nil
			}))
		}
		for _, other := range others {
			require.NoError(t, wait(t, other))
		}
		close(stop)
		require.ErrorIs(t, wait(t, refused), protocol.ErrTooLarge)
	})
}

// A connection that breaks behind a large request says nothing of its size, if the server is known
// to take that; and once is not enough.
func TestCutBehindALargeRequestIsNoRefusal(t *testing.T) {
	each(t, func(t *testing.T, srv *recipestest.Server) {
		path, link := srv.Root(t)+"/line", srv.Link(t)
		c := link.Client(t)
		large := line.Request{Kind: "lock-", Blockers: line.Exclusive, Data: make([]byte, 100_000)}
		for cuts := range 3 {
			for range cuts {
				link.LoseReply(recipestest.OpCreate, cuts)
				link.LoseReply(recipestest.OpMulti, cuts)
			}

			g, err := lineAt(c, path).Enter(lasting(t), large)

			require.NoError(t, err, "%d cuts", cuts)
			require.NoError(t, g.Release(lasting(t)))
		}
		for step := 1; step <= 12; step++ {
			g, err := lineAt(c, path).Enter(lasting(t), large)
			require.NoError(t, err)
			stop := link.At(step, func() { link.Cut(); link.Heal() })
			require.NoError(t, g.SetData(lasting(t), large.Data))
			require.NoError(t, g.Release(lasting(t)))
			stop()
		}
	})
}

func TestOneCutBehindALargeRequestIsNoRefusal(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link := srv.Root(t)+"/line", srv.Link(t)
		dialer, sets := hangingUp(link, recipestest.OpSetData)
		c := link.Client(t, dialer)
		g := hold(t, c, path)
		sets.Store(1)

		require.NoError(t, g.SetData(lasting(t), make([]byte, 100_000)))

		require.Zero(t, sets.Load()+1, "one more was sent")
		require.NoError(t, g.Release(lasting(t)))
		require.NoError(t, c.Close())
	})
}

// The end of a connection is a reset where a server ends it before it has read the whole request.
func TestResetsAtALargeRequestAreARefusal(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link := srv.Root(t)+"/line", srv.Link(t)
		var left atomic.Int32
		c := link.Client(t, protocol.WithDialer(func(network, address string, timeout time.Duration) (net.Conn, error) {
			conn, err := link.Dial(network, address, timeout)
			return &resetConn{conn, link, &left}, err
		}))
		g := hold(t, c, path)
		left.Store(2)

		require.ErrorIs(t, g.SetData(lasting(t), make([]byte, 100_000)), protocol.ErrTooLarge)

		require.Zero(t, left.Load())
		require.NoError(t, g.Release(lasting(t)))
		require.NoError(t, c.Close())
	})
}

// A resetConn is reset at setData, as often as left says.
type resetConn struct {
	net.Conn
	link *recipestest.Link
	left *atomic.Int32
}

func (c *resetConn) Write(p []byte) (int, error) {
	if len(p) >= 12 && recipestest.Op(binary.BigEndian.Uint32(p[8:])) == recipestest.OpSetData && c.left.Load() > 0 {
		c.left.Add(-1)
		c.link.Cut()
		c.link.Heal()
		return len(p), nil
	}
	return c.Conn.Write(p)
}

// A request that is no larger than one that the server has accepted was not refused, however often
// the connection breaks.
func TestHangingUpAtARequestOfAKnownSizeIsNoRefusal(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link := srv.Root(t)+"/line", srv.Link(t)
		dialer, sets := hangingUp(link, recipestest.OpSetData)
		c := link.Client(t, dialer)
		g := hold(t, c, path)
		data := make([]byte, 100_000)
		require.NoError(t, g.SetData(lasting(t), data))
		sets.Store(5)

		require.NoError(t, g.SetData(lasting(t), data))

		require.Negative(t, sets.Load())
		require.NoError(t, g.Release(lasting(t)))
		require.NoError(t, c.Close())
	})
}

// A server that hangs up at whatever is sent refuses nothing in particular.
func TestHangingUpAtEverythingIsNoRefusal(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link := srv.Root(t)+"/data", srv.Link(t)
		dialer, requests := hangingUp(link, recipestest.OpAny)
		c := link.Client(t, dialer)
		s := session(t, c)
		_, err := s.EnsurePath(lasting(t), path)
		require.NoError(t, err)
		requests.Store(6)

		_, err = protocol.Do(lasting(t), s, func(c *zk.Conn) (*zk.Stat, error) {
			return protocol.Set(c, s.Path(path), make([]byte, 100_000), -1)
		})

		require.NoError(t, err)
		require.Negative(t, requests.Load())
		require.NoError(t, c.Close())
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
				_, err := protocol.Create(c, node+"/x-", data, zk.FlagEphemeralSequential, zk.WorldACL(zk.PermAll))
				return err
			},
			recipestest.OpSetData: func(c *zk.Conn, node string, data []byte) error {
				_, err := protocol.Set(c, node, data, -1)
				return err
			},
			recipestest.OpMulti: func(c *zk.Conn, node string, data []byte) error {
				_, err := protocol.Multi(c,
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
