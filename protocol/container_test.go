package protocol_test

import (
	"encoding/binary"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
	"github.com/zkrecipes/zkrecipes/recipestest/ensemble"
)

// withoutContainers runs a test on a server that is like one of ZooKeeper 3.4.
func withoutContainers(t *testing.T, test func(t *testing.T, srv *recipestest.Server)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		test(t, recipestest.Start(t, recipestest.WithInMemory(), recipestest.WithConfigFunc(func(cfg *embedded.Config) { cfg.NoContainers = true })))
	})
}

func TestServersWithoutContainersAreAskedOnce(t *testing.T) {
	// asked returns how often a session asks for containers, and how often it connects again.
	asked := func(t *testing.T, srv *recipestest.Server) (requests, connects int) {
		root, link := srv.Root(t), srv.Link(t)
		c := link.Client(t)
		before := link.Count(recipestest.OpConnect)
		for _, path := range []string{root + "/a/b/c", root + "/d/e/f"} {
			require.NoError(t, hold(t, c, path).Release(lasting(t)))
		}
		return link.Count(recipestest.OpCreateContainer), link.Count(recipestest.OpConnect) - before
	}

	t.Run("embedded", func(t *testing.T) {
		withoutContainers(t, func(t *testing.T, srv *recipestest.Server) {
			var requests, connects int
			require.Less(t, took(func() { requests, connects = asked(t, srv) }), 200*time.Millisecond)
			require.Equal(t, 1, requests)
			require.LessOrEqual(t, connects, 1)
		})
	})

	t.Run("real", func(t *testing.T) {
		srv := ensemble.Real(t)
		if suite.Has(t, srv, suite.Containers) {
			t.Skipf("ZooKeeper %s has container nodes", srv.Version())
		}
		requests, connects := asked(t, srv)
		require.LessOrEqual(t, requests, 2, "the connection may end before the answer is read")
		require.LessOrEqual(t, connects, requests)
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
		suite.Needs(t, srv, suite.Containers)
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
