package protocol_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

// names resolves names to these addresses.
type names map[string][]string

func (n names) LookupHost(_ context.Context, host string) ([]string, error) {
	if found := n[host]; found != nil {
		return append([]string(nil), found...), nil
	}
	return nil, &net.DNSError{Err: "no such host", Name: host}
}

// TestEveryAddressOfAServerIsTried has a name whose first address accepts connections and hangs up,
// as a member does that has no quorum.
func TestEveryAddressOfAServerIsTried(t *testing.T) {
	t.Parallel()
	srv, err := embedded.Start(embedded.Config{})
	require.NoError(t, err)
	defer srv.Close()
	_, port, err := net.SplitHostPort(srv.ConnectString())
	require.NoError(t, err)
	sick, err := net.Listen("tcp", net.JoinHostPort("127.0.0.2", port))
	if err != nil {
		t.Skip("one loopback address only:", err)
	}
	defer sick.Close()
	var asked atomic.Int32
	go func() {
		for {
			conn, err := sick.Accept()
			if err != nil {
				return
			}
			asked.Add(1)
			conn.Close()
		}
	}()

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c, err := protocol.Connect(ctx, "missing:"+port+",ensemble:"+port, protocol.WithResolver(names{"ensemble": {"127.0.0.2", "127.0.0.1"}}))
	require.NoError(t, err)
	s, err := c.Session(ctx)
	require.NoError(t, err)
	for i := 0; i < 3 || asked.Load() == 0; i++ { // a live session, too
		srv.DropConnections()
		_, _, err := s.Conn().Exists("/")
		for err != nil && ctx.Err() == nil {
			_, _, err = s.Conn().Exists("/")
		}
		require.NoError(t, err)
	}
	require.NoError(t, s.Err())
	require.NoError(t, c.Close())
}
