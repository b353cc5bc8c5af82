package suite

import (
	"context"
	"encoding/binary"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/recipestest/ensemble"
)

// EmbeddedAndReal runs a test against the embedded server and against a real one.
func EmbeddedAndReal(t *testing.T, test func(t *testing.T, srv *recipestest.Server)) {
	t.Helper()
	t.Parallel()
	t.Run("embedded", func(t *testing.T) {
		t.Parallel()
		test(t, recipestest.Start(t))
	})
	t.Run("real", func(t *testing.T) {
		t.Parallel()
		test(t, ensemble.Real(t))
	})
}

// Bubble is [recipestest.Bubble] for a parallel test.
func Bubble(t *testing.T, test func(t *testing.T, srv *recipestest.Server)) {
	t.Helper()
	t.Parallel()
	recipestest.Bubble(t, test)
}

// Lasting returns a context that ends only if the test hangs.
func Lasting(t testing.TB) context.Context { return Within(t, Limit) }

// Within returns a context that ends after d, or with the test.
func Within(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// Wait waits for a signal that must come.
func Wait[T any](t testing.TB, signal <-chan T) T {
	t.Helper()
	select {
	case v := <-signal:
		return v
	case <-time.After(Limit):
		require.FailNow(t, "no signal")
		panic("unreachable")
	}
}

// Later runs f, and returns a channel with its result.
func Later[T any](f func() T) <-chan T {
	result := make(chan T, 1)
	go func() { result <- f() }()
	return result
}

// Soon waits for a condition that no signal tells of.
func Soon(t testing.TB, condition func() bool, what string) {
	t.Helper()
	for deadline := time.Now().Add(Limit); !condition(); time.Sleep(5 * time.Millisecond) {
		require.True(t, time.Now().Before(deadline), what)
	}
}

// Reconnect makes a client come back over another connection.
func Reconnect(t testing.TB, link *recipestest.Link, c *protocol.Client) {
	t.Helper()
	back := link.Answered(recipestest.OpConnect, link.Count(recipestest.OpConnect)+1)
	link.Cut()
	link.Heal()
	Wait(t, back)
	conn := Session(t, c).Conn()
	Soon(t, func() bool { return conn.State() == zk.StateHasSession }, "back")
}

// Breaking returns a way through link on which the connection breaks at as many requests of a kind
// as the counter says. None of those requests reaches the server.
func Breaking(link *recipestest.Link, op recipestest.Op) (protocol.ConnectOption, *atomic.Int32) {
	left := new(atomic.Int32)
	return protocol.WithDialer(func(network, address string, timeout time.Duration) (net.Conn, error) {
		c, err := link.Dial(network, address, timeout)
		if err != nil {
			return nil, err
		}
		return &breakingConn{c, op, left}, nil
	}), left
}

type breakingConn struct {
	net.Conn
	op   recipestest.Op
	left *atomic.Int32
}

func (c *breakingConn) Write(p []byte) (int, error) {
	if len(p) >= 12 && recipestest.Op(binary.BigEndian.Uint32(p[8:])) == c.op && c.left.Load() > 0 {
		c.left.Add(-1)
		c.Conn.Close()
		return 0, net.ErrClosed
	}
	return c.Conn.Write(p)
}
