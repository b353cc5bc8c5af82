package protocol_test

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// A lockedBuffer is a bytes.Buffer that is safe for concurrent use.
type lockedBuffer struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.String()
}

// Without WithLogger, warnings go to slog's default logger as it is at that time, and nothing less
// does. One of them says, once, that the server grants another session timeout than was asked for.
func TestDefaultLoggerGetsWarnings(t *testing.T) {
	recipestest.Bubble(t, func(t *testing.T, srv *recipestest.Server) { // not in parallel: the logger is everybody's
		link := srv.Link(t)
		c, err := protocol.Connect(lasting(t), srv.ConnectString(), protocol.WithDialer(link.Dial), protocol.WithSessionTimeout(1234*time.Second))
		require.NoError(t, err)
		defer c.Close()
		synctest.Wait() // until the first warning is out
		before := slog.Default()
		defer slog.SetDefault(before)
		var log lockedBuffer
		slog.SetDefault(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))

		g := hold(t, c, srv.Root(t)+"/line")
		waits := later(func() error {
			g, err := lineAt(c, srv.Root(t)+"/line").Enter(lasting(t), request)
			if err == nil {
				release(t, g)
			}
			return err
		})
		time.Sleep(6 * time.Second) // so long that a waiter would be an info
		link.Cut()
		time.Sleep(2 * time.Second)
		link.Heal()
		time.Sleep(5 * time.Second)
		release(t, g)
		require.NoError(t, wait(t, waits))
		require.Contains(t, log.String(), "no connection")
		require.NotContains(t, log.String(), "level=INFO")
		require.NotContains(t, log.String(), "level=DEBUG")

		// The warning about the timeout has come before: another client gets one of its own.
		again, err := protocol.Connect(lasting(t), srv.ConnectString(), protocol.WithDialer(link.Dial), protocol.WithSessionTimeout(1234*time.Second))
		require.NoError(t, err)
		defer again.Close()
		link.Cut()
		link.Heal()
		time.Sleep(5 * time.Second)
		require.Equal(t, 1, strings.Count(log.String(), "the server grants another session timeout"))
		require.Contains(t, log.String(), "asked=20m34s")
	})
}
