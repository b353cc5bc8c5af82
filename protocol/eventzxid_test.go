package protocol_test

import (
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/zkwire"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

// inBothVersions runs a test in virtual time on servers like 3.8 and 3.9. Since 3.9, events carry
// the zxid of their transaction.
func inBothVersions(t *testing.T, test func(t *testing.T, version string, srv *recipestest.Server), opts ...recipestest.Option) {
	for _, version := range []string{"3.8", "3.9"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				test(t, version, recipestest.Start(t, append(opts, recipestest.WithInMemory(),
					recipestest.WithConfigFunc(func(cfg *embedded.Config) { cfg.Version = version }))...))
			})
		})
	}
}

// A claimingConn stores the last zxid that the handshake claims to have seen.
type claimingConn struct {
	net.Conn
	claimed *atomic.Int64
	greeted bool
}

func (c *claimingConn) Write(p []byte) (int, error) {
	if !c.greeted {
		c.greeted = true
		if hello, err := zkwire.ParseConnectRequest(p[4:]); err == nil {
			c.claimed.Store(hello.LastZxid)
		}
	}
	return c.Conn.Write(p)
}

func TestNextConnectionClaimsTheZxidOfAnEvent(t *testing.T) {
	inBothVersions(t, func(t *testing.T, version string, srv *recipestest.Server) {
		link, other := srv.Link(t), session(t, srv.Client(t))
		path := srv.Root(t)
		require.NoError(t, other.Create(t.Context(), path, nil, 0))
		var claimed atomic.Int64
		c := link.Client(t, protocol.WithDialer(func(network, address string, timeout time.Duration) (net.Conn, error) {
			conn, err := link.Dial(network, address, timeout)
			return &claimingConn{Conn: conn, claimed: &claimed}, err
		}))
		_, read, events, err := session(t, c).Conn().GetW(path)
		require.NoError(t, err)

		changed, err := other.Conn().Set(path, nil, -1)
		require.NoError(t, err)
		require.Equal(t, zk.EventNodeDataChanged, wait(t, events).Type)
		resume(t, link, c)

		if version == "3.8" {
			require.GreaterOrEqual(t, claimed.Load(), read.Mzxid)
			require.Less(t, claimed.Load(), changed.Mzxid)
		} else {
			require.Equal(t, changed.Mzxid, claimed.Load())
		}
	})
}

// The servers of a session that connects again lag: they may know less than the event told.
func TestEventsArriveThroughCutsInBothVersions(t *testing.T) {
	inBothVersions(t, func(t *testing.T, _ string, srv *recipestest.Server) {
		link, other := srv.Link(t), session(t, srv.Client(t))
		path := srv.Root(t)
		require.NoError(t, other.Create(t.Context(), path, nil, 0))
		c := link.Client(t)
		s := session(t, c)

		for round := range 100 {
			var events <-chan zk.Event
			before, err := recipe.Do(lasting(t), s, func(conn *zk.Conn) (stat *zk.Stat, err error) {
				if _, err := conn.Sync(path); err != nil {
					return nil, err
				}
				_, stat, events, err = conn.GetW(path)
				return stat, err
			})
			require.NoError(t, err)
			require.EqualValues(t, round, before.Version)

			set := later(func() error {
				_, err := other.Set(lasting(t), path, nil, -1)
				return err
			})
			time.Sleep(time.Duration(round%10) * time.Millisecond)
			link.Cut()
			link.Heal()
			require.NoError(t, wait(t, set))
			require.Equal(t, zk.EventNodeDataChanged, wait(t, events).Type)
		}
		require.NoError(t, s.Err())
	}, recipestest.Lagging(6*time.Millisecond))
}

// A node changes while the client is away. Over the next connection an event of a later change
// arrives before the watch of that node is set again, and then that connection breaks, too.
func TestEventBeforeWatchesAreSetAgainHidesNoEarlierOne(t *testing.T) {
	inBothVersions(t, func(t *testing.T, _ string, srv *recipestest.Server) {
		root, link, other := srv.Root(t), srv.Link(t), session(t, srv.Client(t)).Conn()
		for _, path := range []string{root, root + "/first", root + "/second"} {
			_, err := other.Create(path, nil, 0, zk.WorldACL(zk.PermAll))
			require.NoError(t, err)
		}
		withhold := new(atomic.Bool)
		c := link.Client(t, withheld(link, withhold))
		conn := session(t, c).Conn()
		_, _, first, err := conn.GetW(root + "/first")
		require.NoError(t, err)

		withhold.Store(true)
		link.Cut()
		_, err = other.Set(root+"/first", nil, -1)
		require.NoError(t, err)
		resume(t, link, c)
		_, _, second, err := conn.GetW(root + "/second")
		require.NoError(t, err)
		_, err = other.Set(root+"/second", nil, -1)
		require.NoError(t, err)
		require.Equal(t, zk.EventNodeDataChanged, wait(t, second).Type)
		require.Empty(t, first)

		withhold.Store(false)
		resume(t, link, c)
		require.Equal(t, zk.EventNodeDataChanged, wait(t, first).Type)
	})
}
