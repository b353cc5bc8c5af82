package recipestest

import (
	"context"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
)

// connectPatience is how long a client may take to open its first session.
const connectPatience = 30 * time.Second

// Client connects to the server over a sound network. The client is closed when
// tb ends. Among opts, protocol.WithDialer replaces the server's own dialer.
// Client fails tb at once if no session can be opened within thirty seconds.
func (s *Server) Client(tb testing.TB, opts ...protocol.ConnectOption) *protocol.Client {
	tb.Helper()
	return s.client(tb, s.Dial, opts)
}

// Client connects to the server through the link, and is [Server.Client]
// otherwise. It needs the link to be whole. The test fails if one of the client's
// sessions ever goes back in time: see [Link.DialStrict].
func (l *Link) Client(tb testing.TB, opts ...protocol.ConnectOption) *protocol.Client {
	tb.Helper()
	return l.server.client(tb, l.DialStrict, opts)
}

func (s *Server) client(tb testing.TB, dial zk.Dialer, opts []protocol.ConnectOption) *protocol.Client {
	tb.Helper()
	t := s.tenantOf(tb)
	ctx, cancel := context.WithTimeout(tb.Context(), connectPatience)
	defer cancel()
	opts = append([]protocol.ConnectOption{protocol.WithDialer(dial)}, opts...)
	c, err := protocol.Connect(ctx, s.connectString, opts...)
	if err != nil {
		tb.Fatalf("recipestest: connect: %v", err)
	}
	t.mu.Lock()
	t.clients = append(t.clients, c)
	t.mu.Unlock()
	if _, err := c.Session(ctx); err != nil {
		tb.Fatalf("recipestest: open a session: %v", err)
	}
	return c
}
