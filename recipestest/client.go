package recipestest

import (
	"context"
	"io"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
)

// connectTimeout is how long a client may take to open its first session.
const connectTimeout = 30 * time.Second

// Client connects to the server over a sound network. It blocks until the client has a session, and
// fails tb if that takes more than thirty seconds. The client is closed when tb ends.
// protocol.WithDialer in opts replaces the server's own dialer. Without protocol.WithLogger, the
// client logs nothing.
func (s *Server) Client(tb testing.TB, opts ...protocol.ConnectOption) *protocol.Client {
	tb.Helper()
	return s.client(tb, s.connectString, s.Dial, opts)
}

// Client is [Server.Client] through the link, which must not be broken.
//
// The link's test fails if a session of the client goes back in time: it resumes with a smaller
// zxid than the greatest zxid delivered to it, so that the next server can show it an older state.
// The link reports that with the session's first request. (A connection that only closes its
// session may name any zxid.)
func (l *Link) Client(tb testing.TB, opts ...protocol.ConnectOption) *protocol.Client {
	tb.Helper()
	return l.server.client(tb, l.server.connectString, l.DialChecked, opts)
}

func (s *Server) client(tb testing.TB, connectString string, dial zk.Dialer, opts []protocol.ConnectOption) *protocol.Client {
	tb.Helper()
	r := s.resourcesOf(tb)
	ctx, cancel := context.WithTimeout(tb.Context(), connectTimeout)
	defer cancel()

	silent := protocol.WithLogger(slog.New(slog.DiscardHandler))
	opts = append([]protocol.ConnectOption{protocol.WithDialer(dial), silent}, opts...)
	c, err := protocol.Connect(ctx, connectString, opts...)
	if err != nil {
		tb.Fatalf("recipestest: connect: %v", err)
	}

	// Register the client before it has a session, so that it is closed if that fails.
	r.mu.Lock()
	if len(r.clients) == cap(r.clients) { // make room before it grows
		r.clients = slices.DeleteFunc(r.clients, closed)
	}
	r.clients = append(r.clients, c)
	r.mu.Unlock()

	if _, err := c.Session(ctx); err != nil {
		tb.Fatalf("recipestest: open a session: %v", err)
	}

	return c
}

// closed reports whether the test has closed a client. Each client that is kept keeps a megabyte.
func closed(c io.Closer) bool {
	client, ok := c.(*protocol.Client)
	return ok && client.State() == protocol.Closed
}

// Conn connects a plain go-zookeeper client over a sound network, with a session timeout of ten
// seconds. It closes the client when tb ends. It blocks until the client has a session, and fails
// tb if that takes more than thirty seconds. Paths are absolute: the chroot of an attached server
// isn't added.
func (s *Server) Conn(tb testing.TB) *zk.Conn {
	tb.Helper()
	r := s.resourcesOf(tb)
	hosts, _ := s.addresses()
	conn, events, err := zk.Connect(hosts, 10*time.Second, zk.WithDialer(s.Dial), zk.WithLogInfo(false))
	if err != nil {
		tb.Fatalf("recipestest: connect: %v", err)
	}

	r.mu.Lock()
	r.clients = append(r.clients, plainConn{conn})
	r.mu.Unlock()

	timeout := time.After(connectTimeout)
	for {
		select {
		case e := <-events:
			if e.State == zk.StateHasSession {
				return conn
			}
		case <-timeout:
			tb.Fatalf("recipestest: no session within %v", connectTimeout)
		}
	}
}

type plainConn struct{ *zk.Conn }

func (c plainConn) Close() error {
	c.Conn.Close()
	return nil
}
