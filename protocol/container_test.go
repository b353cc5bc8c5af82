package protocol_test

import (
	"encoding/binary"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

// withoutContainers runs a test on a server that is like one of ZooKeeper 3.4.
func withoutContainers(t *testing.T, test func(t *testing.T, srv *recipestest.Server)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		test(t, recipestest.Start(t, recipestest.WithInMemory(), recipestest.WithConfigFunc(func(cfg *embedded.Config) { cfg.NoContainers = true })))
	})
}

func TestServersWithoutContainersAreAskedOnce(t *testing.T) {
	withoutContainers(t, func(t *testing.T, srv *recipestest.Server) {
		root, link := srv.Root(t), srv.Link(t)
		c := link.Client(t)
		connects := link.Count(recipestest.OpConnect)

		for _, path := range []string{root + "/a/b/c", root + "/d/e/f"} {
			var g *protocol.Grant
			require.Less(t, took(func() { g = hold(t, c, path) }), 100*time.Millisecond)
			require.NoError(t, g.Release(lasting(t)))
		}

		require.LessOrEqual(t, link.Count(recipestest.OpConnect)-connects, 1)
		require.Equal(t, 1, link.Count(recipestest.OpCreateContainer))
	})
}

// hangingUp is a way through link on which the connection is ended by the other side, without an
// answer, at as many requests of a kind as the counter says. None of those requests reaches the
// server.
func hangingUp(link *recipestest.Link, op recipestest.Op) (protocol.ConnectOption, *atomic.Int32) {
	left := new(atomic.Int32)
	ends := func(p []byte) bool {
		if len(p) < 12 || int32(binary.BigEndian.Uint32(p[4:])) <= 0 { // a handshake, or a ping
			return false
		}
		return (op == recipestest.OpAny || op == recipestest.Op(binary.BigEndian.Uint32(p[8:]))) && left.Add(-1) >= 0
	}
	return protocol.WithDialer(func(network, address string, timeout time.Duration) (net.Conn, error) {
		server, err := link.Dial(network, address, timeout)
		if err != nil {
			return nil, err
		}
		here, there := net.Pipe()
		go func() {
			defer there.Close()
			defer server.Close()
			buf := make([]byte, 1<<20)
			for {
				n, err := there.Read(buf)
				if err != nil || ends(buf[:n]) {
					return
				}
				if _, err := server.Write(buf[:n]); err != nil {
					return
				}
			}
		}()
		go func() {
			defer there.Close()
			buf := make([]byte, 1<<20)
			for {
				n, err := server.Read(buf)
				if err != nil {
					return
				}
				if _, err := there.Write(buf[:n]); err != nil {
					return
				}
			}
		}()
		return here, nil
	}), left
}

func TestServersThatHangUpAtContainersAreAskedTwice(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		root, link := srv.Root(t), srv.Link(t)
		dialer, left := hangingUp(link, recipestest.OpCreateContainer)
		c := link.Client(t, dialer)
		left.Store(99)
		connects := link.Count(recipestest.OpConnect)

		require.NoError(t, hold(t, c, root+"/a/b/c").Release(lasting(t)))
		require.NoError(t, hold(t, c, root+"/d/e/f").Release(lasting(t)))

		require.Equal(t, 2, link.Count(recipestest.OpConnect)-connects)
		require.NoError(t, c.Close())
	})
}

// A connection that breaks once says nothing.
func TestParentsAreContainersAfterACut(t *testing.T) {
	each(t, func(t *testing.T, srv *recipestest.Server) {
		root, link := srv.Root(t), srv.Link(t)
		c := link.Client(t)
		s := session(t, c)
		for _, path := range []string{root, root + "/a"} {
			link.LoseReply(recipestest.OpCreateContainer, 1)
			_, err := s.EnsurePath(lasting(t), path)
			require.NoError(t, err)
		}
		before := link.Count(recipestest.OpCreateContainer)
		_, err := s.EnsurePath(lasting(t), root+"/b")
		require.NoError(t, err)
		require.Greater(t, link.Count(recipestest.OpCreateContainer), before)
	})
}
