package recipestest_test

import (
	"net"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"
	"weak"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

func TestClientHasASessionAndIsClosedWithTheTest(t *testing.T) {
	everywhere(t, func(t *testing.T, s *recipestest.Server) {
		var clients []*protocol.Client
		f := run(t, func(tb testing.TB) {
			clients = append(clients, s.Client(tb), s.Link(tb).Client(tb))
			for _, c := range clients {
				session := suite.Got(c.Session(t.Context()))(tb)
				require.NotZero(tb, session.ID())
			}
		})

		require.Empty(t, f.errors)
		require.Len(t, clients, 2)
		for _, c := range clients {
			require.ErrorIs(t, suite.Err(c.Session(t.Context())), protocol.ErrClosed)
		}
	})
}

func TestClientTakesTheDialerOfItsOptions(t *testing.T) {
	overBoth(t, func(t *testing.T, s *recipestest.Server) {
		var dials atomic.Int32
		s.Link(t).Client(t, protocol.WithDialer(func(network, address string, timeout time.Duration) (net.Conn, error) {
			dials.Add(1)
			return s.Dial(network, address, timeout)
		}))
		require.NotZero(t, dials.Load())
	})
}

func TestClientFailsTheTestIfThereIsNoServer(t *testing.T) {
	t.Parallel()
	recipestest.Bubble(t, func(t *testing.T, s *recipestest.Server) {
		begin := time.Now()
		f := run(t, func(tb testing.TB) {
			link := s.Link(tb)
			link.Cut()
			link.Client(tb)
			t.Error("Client returned")
		})

		require.Len(t, f.errors, 1)
		require.Less(t, time.Since(begin), 40*time.Second)
	})
}

// A client has megabytes of buffers, and a test may open many, one after the other.
func TestClosedClientsAreFreed(t *testing.T) {
	t.Parallel()
	recipestest.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		var clients []weak.Pointer[protocol.Client]
		for range 20 {
			c := srv.Client(t)
			clients = append(clients, weak.Make(c))
			require.NoError(t, c.Close())
		}
		time.Sleep(time.Minute) // the background work of all of them ends
		runtime.GC()
		held := slices.DeleteFunc(clients, func(c weak.Pointer[protocol.Client]) bool { return c.Value() == nil })
		require.LessOrEqual(t, len(held), 4)
	})
}
