package protocol_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// A user who closes the zk.Conn of a session ends that session. The client opens another one, and
// can be closed.
func TestClosedConnEndsTheSession(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		for _, stalled := range []bool{false, true} {
			link := srv.Link(t)
			c := link.Client(t)
			s := session(t, c)
			if stalled {
				link.Stall()
			}
			s.Conn().Close()
			wait(t, s.Done())
			require.ErrorIs(t, s.Err(), protocol.ErrLost)
			if stalled {
				link.Heal()
			}
			require.NotEqual(t, s.ID(), session(t, c).ID())
			session(t, c).Conn().Close()
			require.LessOrEqual(t, took(func() { c.Close() }), 2*time.Second)
		}
	})
}

// The handshake is answered, and the credential is not.
func TestConnectIsBackWhenItsContextEnds(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link := srv.Link(t)
		link.At(3, link.Stall)
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		began := time.Now()
		_, err := protocol.Connect(ctx, srv.ConnectString(), protocol.WithDialer(link.Dial), protocol.WithAuth("digest", []byte("a:b")))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.LessOrEqual(t, time.Since(began), 600*time.Millisecond)
		link.Heal()
		time.Sleep(time.Minute)
	})
}

// A connection whose peer has stopped to read blocks a write until it is closed.
type full struct {
	net.Conn
	stalled <-chan struct{}
	closed  chan struct{}
}

func (f full) Write(p []byte) (int, error) {
	select {
	case <-f.stalled:
		<-f.closed
		return 0, net.ErrClosed
	default:
		return f.Conn.Write(p)
	}
}

func (f full) Close() error { close(f.closed); return f.Conn.Close() }

func TestCloseTakesTwoSecondsAtMostThoughBuffersAreFull(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		for _, callers := range []int{1, 17, 40} {
			stalled := make(chan struct{})
			c := srv.Client(t, protocol.WithDialer(func(network, address string, d time.Duration) (net.Conn, error) {
				conn, err := srv.Dial(network, address, d)
				return full{conn, stalled, make(chan struct{})}, err
			}))
			s := session(t, c)
			close(stalled)
			for range callers {
				go s.Get(lasting(t), "/")
			}
			time.Sleep(100 * time.Millisecond)
			require.LessOrEqual(t, took(func() { c.Close() }), 2*time.Second)
		}
	})
}

// One of two members is frozen: it accepts connections and says nothing.
func TestFrozenMemberCostsAFewSeconds(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		frozen := srv.Link(t)
		frozen.Stall()
		began := time.Now()
		c := srv.Client(t, protocol.WithSessionTimeout(2*time.Minute), protocol.WithDialer(frozenFirst(frozen.Dial, srv.Dial)))
		require.NotNil(t, session(t, c))
		require.LessOrEqual(t, time.Since(began), 4*time.Second)
	})
}

// frozenFirst dials with first, and then with the other one.
func frozenFirst(first, other zk.Dialer) zk.Dialer {
	var tried atomic.Bool
	return func(network, address string, d time.Duration) (net.Conn, error) {
		if tried.CompareAndSwap(false, true) {
			return first(network, address, d)
		}
		return other(network, address, d)
	}
}
