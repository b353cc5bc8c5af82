package protocol_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
	kernel "github.com/zkrecipes/zkrecipes/internal/session"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// overBroken has c dial from now on through a proxy that passes requests on and hangs up instead of
// answering.
func (w *town) overBroken(c *protocol.Client) {
	w.mu.Lock()
	kernel.Open(c).Dial = func(ctx context.Context, network, address string, timeout time.Duration) (net.Conn, error) {
		conn, err := w.dial(ctx, network, address, timeout)
		if err != nil {
			return nil, err
		}
		return hangsUp{conn}, nil
	}
	w.mu.Unlock()
	w.homes["10.0.0.1"].DropConnections()
}

// A client that waits behind a broken proxy does not keep its place in line for ever: its attempts
// would prolong the life of its session.
func TestPlaceInLineIsNotKeptBehindABrokenProxy(t *testing.T) {
	t.Parallel()
	inTown(t, 1, func(t *testing.T, w *town, connect string) {
		const timeout = 4 * time.Second
		c := w.client(t, connect, timeout)
		s := place(t, c, "/node")
		other, err := recipe.SessionOf(t.Context(), w.client(t, connect, timeout))
		require.NoError(t, err)
		w.overBroken(c)
		gone, cancel := context.WithTimeout(t.Context(), 4*timeout)
		defer cancel()
		_, err = other.WaitNode(gone, "/node", func(*zk.Stat) bool { return false })
		require.NoError(t, err, "the place in line")
		require.NoError(t, s.Err(), "no server has said anything")
	})
}

// Calls of a user are bounded by the session timeout, though the session is not over. Work that they
// have begun goes on.
func TestCallsEndThoughTheirSessionLasts(t *testing.T) {
	t.Parallel()
	inTown(t, 1, func(t *testing.T, w *town, connect string) {
		const timeout = 4 * time.Second
		srv := w.homes["10.0.0.1"]
		c := w.client(t, connect, timeout)
		s := place(t, c, "/node")
		patient, err := recipe.New(c, "test", "/x").Session(t.Context())
		require.NoError(t, err)
		srv.Stop()
		for name, call := range map[string]func() error{
			"read":  func() error { _, _, err := s.Get(t.Context(), "/node"); return err },
			"fence": func() error { return s.Fence(t.Context()) },
			"watch": func() error { _, err := s.Watch("/other").Ready(t.Context()); return err },
			"contend": func() error {
				_, err := s.CreateOwn(t.Context(), recipe.OwnNode{Dir: "/dir", Prefix: "n-"})
				return err
			},
		} {
			began := time.Now()
			require.ErrorIs(t, call(), zk.ErrNoServer, name)
			require.LessOrEqual(t, time.Since(began), timeout, name)
			require.NoError(t, s.Err(), name)
		}

		later := make(chan error, 1)
		go func() {
			_, _, err := patient.Get(context.Background(), "/node")
			later <- err
		}()
		time.Sleep(10 * timeout)
		require.NoError(t, srv.Resume())
		require.NoError(t, <-later, "a recipe waits")
		require.NoError(t, s.Err())
		children, _, err := s.Children(t.Context(), "/")
		require.NoError(t, err)
		require.Contains(t, children, "node")
	})
}

// The servers come back without their data, and behind all that the session has seen. They answer
// nothing else to it, so the client opens another one.
func TestSessionOfAnEnsembleThatHasLostItsDataEnds(t *testing.T) {
	t.Parallel()
	inTown(t, 1, func(t *testing.T, w *town, connect string) {
		c := w.client(t, connect, 4*time.Second)
		s := place(t, c, "/node")
		w.down()
		time.Sleep(time.Minute)
		w.move("zk-0", "10.0.0.1", ensembleIn(t))
		<-s.Done()
		next, err := c.Session(t.Context())
		require.NoError(t, err)
		require.NotEqual(t, s.ID(), next.ID())
	})
}

// A round in which no name resolves is followed by a pause, as one in which no server answers.
func TestNamesThatDoNotResolveAreLookedUpOnceARound(t *testing.T) {
	t.Parallel()
	inTown(t, 5, func(t *testing.T, w *town, connect string) {
		clear(w.names)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		_, err := protocol.Connect(ctx, connect, protocol.WithNet(w.dial, w.lookup))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		_, lookups := w.asked()
		require.Less(t, lookups, 5*80)
	})
}
