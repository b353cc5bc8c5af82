package conn

import (
	"context"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A connection that a dialer makes too late is of no use.
func TestConnectionThatComesTooLateIsClosed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		here, there := net.Pipe()
		gone := make(chan struct{})
		go func() { synctest.Wait(); cancel() }()
		_, err := DialWith(ctx, func(string, string, time.Duration) (net.Conn, error) {
			<-gone
			return here, nil
		}, "tcp", "server", time.Second)
		require.ErrorIs(t, err, context.Canceled)
		close(gone)
		_, err = there.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF)
	})
}
