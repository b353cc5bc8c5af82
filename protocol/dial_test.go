package protocol

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

// names is an option that resolves names to these addresses.
func names(addresses map[string][]string) ConnectOption {
	return connectOption(func(c *Client) error {
		c.lookup = func(_ context.Context, host string) ([]string, error) {
			if found := addresses[host]; found != nil {
				return append([]string(nil), found...), nil
			}
			return nil, &net.DNSError{Err: "no such host", Name: host}
		}
		return nil
	})
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
	c, err := Connect(ctx, "missing:"+port+",ensemble:"+port, names(map[string][]string{"ensemble": {"127.0.0.2", "127.0.0.1"}}))
	require.NoError(t, err)
	require.Positive(t, asked.Load())
	s, err := c.Session(ctx)
	require.NoError(t, err)
	for range 3 { // a live session, too
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

func TestRouteHasEveryAddressOfEveryName(t *testing.T) {
	t.Parallel()
	found := map[string][]string{"a": {"10.0.0.1", "fe80::1"}, "b": {"10.0.0.2"}}
	c := &Client{sessions: &sessions{servers: []string{"a:1", "b:2", "c:3", "10.0.0.9:4"}}}
	require.NoError(t, names(found).applyConnect(c))
	round := func(r *route) []string {
		all := []string{r.next(t.Context(), time.Second)}
		for len(all) < r.len() {
			all = append(all, r.next(t.Context(), time.Second))
		}
		return all
	}
	r := newRoute(c.sessions)
	require.ElementsMatch(t, []string{"10.0.0.1:1", "[fe80::1]:1", "10.0.0.2:2", "c:3", "10.0.0.9:4"}, round(r))
	found["b"] = []string{"10.0.0.3"}
	require.Contains(t, round(r), "10.0.0.3:2", "names are resolved anew")

	delete(found, "a")
	require.Contains(t, round(r), "10.0.0.1:1", "a name that cannot be resolved any more")
	require.Contains(t, round(newRoute(c.sessions)), "a:1", "a name that could never be")

	// A dialer gets the names, which certificates are issued for.
	require.NoError(t, WithDialer(net.DialTimeout).applyConnect(c))
	require.ElementsMatch(t, c.servers, round(newRoute(c.sessions)))
}
