package recipe

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/conn"
	"github.com/zkrecipes/zkrecipes/internal/session"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

// held returns something that is held in a session of twelve seconds that has just begun, and has
// no connection.
func held(t *testing.T) *Grant {
	srv, err := embedded.Start(embedded.Config{InMemory: true})
	require.NoError(t, err)
	c, err := protocol.Connect(t.Context(), "a:1", protocol.WithDialer(func(_, _ string, d time.Duration) (net.Conn, error) {
		return srv.Dial("tcp", srv.ConnectString(), d)
	}))
	require.NoError(t, err)
	require.NoError(t, c.Close())
	require.NoError(t, srv.Close())

	*session.Open(c) = *session.Offline(12 * time.Second)
	s, err := SessionOf(t.Context(), c)
	require.NoError(t, err)
	g, err := New(c, "test", "/line").NewGrant(context.Background(), s, "/line/node", 1, nil)
	require.NoError(t, err)
	return g
}

// A client that is being closed starts no goroutine for a deletion.
func TestReleaseOfAClosingClientEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := held(t)
		remove := func(context.Context, *Session) error { return protocol.ErrClosed }
		g.remove = &remove
		require.ErrorIs(t, g.Release(t.Context()), protocol.ErrClosed)

		// A ctx that has ended counts, however soon the deletion ends.
		over, cancel := context.WithCancel(t.Context())
		cancel()
		for range 20 {
			require.ErrorIs(t, g.Release(over), context.Canceled)
		}
	})
}

func TestWrapKeepsNilAndTheError(t *testing.T) {
	t.Parallel()
	require.NoError(t, wrap("lock", "/a", nil))
	err := wrap("lock", "/a", protocol.ErrLost)
	require.EqualError(t, err, "lock: /a: lost")
	require.ErrorIs(t, err, protocol.ErrLost)
	require.Equal(t, err, wrap("lock", "/a", err), "once is enough")
	require.EqualError(t, wrap("lock", "/b", err), "lock: /b: lock: /a: lost")
}

// TestErrIsComputedFromTheClocksWhenItIsCalled runs no goroutine that looks at the clocks, like a
// process that has just been stopped for a while.
func TestErrIsComputedFromTheClocksWhenItIsCalled(t *testing.T) {
	t.Parallel()
	for name, ask := range map[string]func(g *Grant, ctx context.Context) error{
		"session": func(g *Grant, _ context.Context) error { return g.Session().Err() },
		"grant":   func(g *Grant, _ context.Context) error { return g.Err() },
		"context": func(_ *Grant, ctx context.Context) error { ctx.Err(); return context.Cause(ctx) },
		"a new context": func(g *Grant, _ context.Context) error {
			ctx, cancel := g.Context(context.Background())
			defer cancel()
			return context.Cause(ctx)
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			g := held(t)
			ctx, cancel := g.Context(t.Context())
			defer cancel()
			time.Sleep(8*time.Second - 1)
			require.NoError(t, ask(g, ctx), name)
			time.Sleep(time.Nanosecond)
			require.ErrorIs(t, ask(g, ctx), protocol.ErrLost, name)
			<-g.Done()
			<-g.Session().Done()
		})
	}
}

func TestWatchIsUnchangedUntilAnEventOrAReconnect(t *testing.T) {
	reconnected := make(chan struct{})
	w := &Watch{shared: &conn.Watched{Reconnected: reconnected}}
	require.True(t, w.Unchanged())
	close(reconnected)
	require.False(t, w.Unchanged(), "events come in any order after a reconnect")
}

// With ten thousand in line, each of them is asked about ten thousand names.
func TestNamesOfOthersCostNoMemory(t *testing.T) {
	own := &Own{prefix: "0000000000000001-00000001-lock-"}
	line := []string{"0000000000000002-00000001-lock-0000000001", "_c_5d3b2c1a-lock-0000000002", "foreign"}
	require.Zero(t, testing.AllocsPerRun(100, func() { own.Among(line) }))
}
