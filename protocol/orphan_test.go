package protocol_test

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

// TestLostSessionIsClosedWhereCredentialsAreDemanded expects the next waiter to acquire the lock
// before the servers would have expired the session.
func TestLostSessionIsClosedWhereCredentialsAreDemanded(t *testing.T) {
	demanded := recipestest.WithConfigFunc(func(cfg *embedded.Config) { cfg.EnforceAuth = true })
	eachWith(t, suite.CredentialsDemanded, demanded, func(t *testing.T, srv *recipestest.Server) {
		link := srv.Link(t)
		var dials atomic.Int32
		victim := connect(t, srv.ConnectString(), alice, protocol.WithSessionTimeout(10*time.Second), protocol.WithDialer(
			func(network, address string, timeout time.Duration) (net.Conn, error) {
				dials.Add(1)
				return link.Dial(network, address, timeout)
			}))
		other := connect(t, srv.ConnectString(), alice, protocol.WithDialer(srv.Dial))
		timeout := suite.Session(t, victim).Timeout()
		g, next := holdBefore(t, victim, other)
		link.Cut()
		suite.Wait(t, g.Done())
		lost := time.Now()
		link.Heal()
		granted := suite.Wait(t, next)
		require.Less(t, time.Since(lost), timeout)
		require.Less(t, dials.Load(), int32(150))
		suite.Release(t, granted)
		require.NoError(t, victim.Close())
		require.NoError(t, other.Close())
	})
}

// holdBefore has victim hold a lock that other waits for.
func holdBefore(t *testing.T, victim, other *protocol.Client) (*recipe.Grant, <-chan *recipe.Grant) {
	g := suite.Hold(t, victim, "/lock")
	return g, suite.Later(func() *recipe.Grant {
		next, _ := suite.LineAt(other, "/lock").Enter(context.Background(), suite.Request)
		return next
	})
}

// TestAttemptsToCloseALostSessionLeaveNothing loses the answers of a server that executes all
// requests. Attempts to close a lost session, each over a connection of its own, must not keep it
// alive.
func TestAttemptsToCloseALostSessionLeaveNothing(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link, open := srv.Link(t), new(atomic.Int32)
		victim := link.Client(t, suite.Over(link.Dial, func(conn net.Conn) suite.Wire {
			open.Add(1)
			return suite.Wire{Conn: conn, OnClose: sync.OnceValue(func() error { open.Add(-1); return conn.Close() })}
		}))
		g, next := holdBefore(t, victim, srv.Client(t))
		link.StallReplies()
		suite.Wait(t, g.Done())
		suite.Release(t, suite.Wait(t, next))
		link.Heal()
		suite.Session(t, victim)
		time.Sleep(time.Minute)
		require.EqualValues(t, 1, open.Load(), "connections")
	})
}

// TestCloseClosesAnOrphanedSessionDuringItsPause lets attempts to close the session fail, and the
// servers answer again.
func TestCloseClosesAnOrphanedSessionDuringItsPause(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link := srv.Link(t)
		c := link.Client(t)
		g := suite.Hold(t, c, "/lock")
		link.StallReplies()
		suite.Wait(t, g.Done())
		time.Sleep(5 * time.Second)
		link.Heal()
		begin := time.Now()
		require.NoError(t, c.Close())
		require.Less(t, time.Since(begin), time.Second)
	})
}
