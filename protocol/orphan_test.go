package protocol_test

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

// A gate is a dialer that can be shut, and that counts the calls.
type gate struct {
	dialer zk.Dialer
	mute   bool // while it is shut, connections are made and nothing comes back

	mu    sync.Mutex
	shut  bool
	dials int
	conns []net.Conn
}

func (g *gate) dial(network, address string, timeout time.Duration) (net.Conn, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.dials++
	if g.shut && !g.mute {
		return nil, net.ErrClosed
	}
	conn, err := g.dialer(network, address, timeout)
	if err == nil {
		conn = &gatedConn{conn, g}
		g.conns = append(g.conns, conn)
	}
	return conn, err
}

func (g *gate) set(shut bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = shut
	for _, conn := range g.conns {
		conn.Close()
	}
	g.conns = nil
}

func (g *gate) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.dials
}

type gatedConn struct {
	net.Conn
	gate *gate
}

func (c *gatedConn) Read(p []byte) (int, error) {
	for {
		n, err := c.Conn.Read(p)
		c.gate.mu.Lock()
		shut := c.gate.shut
		c.gate.mu.Unlock()
		if err != nil || !shut {
			return n, err
		}
	}
}

// TestLostSessionIsClosedWhereCredentialsAreDemanded expects the next waiter to acquire the lock
// before the servers would have expired the session.
func TestLostSessionIsClosedWhereCredentialsAreDemanded(t *testing.T) {
	t.Run("embedded", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			srv, err := embedded.Start(embedded.Config{InMemory: true, TickTime: time.Second, EnforceAuth: true})
			require.NoError(t, err)
			defer srv.Close()
			closeWithCredentials(t, srv.ConnectString(), srv.Dial)
		})
	})
	t.Run("real", func(t *testing.T) {
		t.Parallel()
		closeWithCredentials(t, suite.RealWith(t, suite.CredentialsDemanded).ConnectString(), net.DialTimeout)
	})
}

func closeWithCredentials(t *testing.T, servers string, dial zk.Dialer) {
	way := &gate{dialer: dial}
	victim := connect(t, servers, alice, protocol.WithSessionTimeout(10*time.Second), protocol.WithDialer(way.dial))
	other := connect(t, servers, alice, protocol.WithDialer(dial))
	timeout := session(t, victim).Timeout()
	g := hold(t, victim, "/lock")
	next := later(func() *recipe.Grant { g, _ := lineAt(other, "/lock").Enter(context.Background(), request); return g })
	way.set(true)
	wait(t, g.Done())
	lost := time.Now()
	way.set(false)
	granted := wait(t, next)
	require.Less(t, time.Since(lost), timeout)
	require.Less(t, way.count(), 150, "dials")
	require.NoError(t, granted.Release(lasting(t)))
	require.NoError(t, victim.Close())
	require.NoError(t, other.Close())
}

// A counted connection counts itself as long as it is open.
type counted struct {
	net.Conn
	close func() error
}

func (c counted) Close() error { return c.close() }

// TestConnectionsToCloseALostSessionAreClosed loses a session, which is closed over a connection of
// its own.
func TestConnectionsToCloseALostSessionAreClosed(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link, open := srv.Link(t), new(atomic.Int32)
		c := link.Client(t, protocol.WithDialer(func(network, address string, timeout time.Duration) (net.Conn, error) {
			conn, err := link.Dial(network, address, timeout)
			if err != nil {
				return nil, err
			}
			open.Add(1)
			return counted{conn, sync.OnceValue(func() error { open.Add(-1); return conn.Close() })}, nil
		}))
		g := hold(t, c, srv.Root(t))
		link.StallReplies()
		wait(t, g.Done())
		link.Heal()
		session(t, c)
		time.Sleep(time.Minute)
		require.EqualValues(t, 1, open.Load())
	})
}

// TestAttemptsToCloseALostSessionDoNotKeepItAlive loses the answers of a server that executes all
// requests.
func TestAttemptsToCloseALostSessionDoNotKeepItAlive(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv, err := embedded.Start(embedded.Config{InMemory: true, TickTime: time.Second})
		require.NoError(t, err)
		defer srv.Close()
		way := &gate{dialer: srv.Dial, mute: true}
		victim := connect(t, srv.ConnectString(), protocol.WithSessionTimeout(10*time.Second), protocol.WithDialer(way.dial))
		other := connect(t, srv.ConnectString(), protocol.WithDialer(srv.Dial))
		g := hold(t, victim, "/lock")
		next := later(func() *recipe.Grant { g, _ := lineAt(other, "/lock").Enter(context.Background(), request); return g })
		way.set(true)
		wait(t, g.Done())
		granted := wait(t, next)
		require.NotNil(t, granted)
		way.set(false)
		require.NoError(t, granted.Release(lasting(t)))
		require.NoError(t, other.Close())
		victim.Close()
	})
}

// TestCloseClosesAnOrphanedSessionDuringItsPause lets attempts to close the session fail, and the
// servers answer again.
func TestCloseClosesAnOrphanedSessionDuringItsPause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv, err := embedded.Start(embedded.Config{InMemory: true, TickTime: time.Second})
		require.NoError(t, err)
		defer srv.Close()
		way := &gate{dialer: srv.Dial, mute: true}
		c := connect(t, srv.ConnectString(), protocol.WithSessionTimeout(10*time.Second), protocol.WithDialer(way.dial))
		g := hold(t, c, "/lock")
		way.set(true)
		wait(t, g.Done())
		time.Sleep(5 * time.Second)
		way.set(false)
		begin := time.Now()
		require.NoError(t, c.Close())
		require.Less(t, time.Since(begin), time.Second)
	})
}
