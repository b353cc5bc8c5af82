package recipestest

import (
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/zkwire"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

// A Server is a ZooKeeper for tests: [Start] makes an embedded server, and [Attach] takes a server
// that runs elsewhere. A test and its subtests can share it, in parallel: each takes its own
// [Server.Root], clients and links, and each is checked when it ends. All methods are safe for
// concurrent use.
type Server struct {
	tb            testing.TB
	connectString string
	dial          zk.Dialer            // to the leader, or to the attached server
	spread        zk.Dialer            // to its followers, if they lag
	embedded      *embedded.Server     // nil if attached
	followers     []*embedded.Follower // that clients use to reach it, if there are any
	tls           *secrecy             // nil if the server doesn't speak TLS

	mu       sync.Mutex // protects the fields below
	faulty   bool       // a test can keep clients from the server
	tests    map[testing.TB]*resources
	sessions map[int64]*session // seen by Dial; only if attached
}

// A session has the data that we need to end it on its client's behalf.
type session struct {
	password []byte
	conns    map[*recordingConn]struct{} // open ones
	ended    bool
}

// Attach makes a Server of a running ZooKeeper (recipestest/ensemble does that). It does no I/O.
// connectString is a list of host:port, with an optional chroot at its end. The chroot must exist.
//
// If the caller stops the ZooKeeper in tb.Cleanup, it must register that before it calls Attach, so
// that the checks of this test still find the server running.
func Attach(tb testing.TB, connectString string) *Server {
	tb.Helper()
	s := newServer(tb, connectString, net.DialTimeout)
	s.resourcesOf(tb)
	return s
}

func newServer(tb testing.TB, connectString string, dial zk.Dialer) *Server {
	return &Server{
		tb:            tb,
		connectString: connectString,
		dial:          dial,
		tests:         make(map[testing.TB]*resources),
		sessions:      make(map[int64]*session),
	}
}

// ConnectString returns the addresses of the server for protocol.Connect. A client of an in-memory
// server also needs [Server.Dial].
func (s *Server) ConnectString() string { return s.connectString }

// Dial connects to the server over a sound network. It is a zk.Dialer. If a client isn't made by
// [Server.Client], let it dial with this, so that it can reach a server in memory and
// [Server.ExpireSession] knows its session.
func (s *Server) Dial(network, address string, timeout time.Duration) (net.Conn, error) {
	if s.spread != nil {
		return s.spread(network, address, timeout)
	}

	c, err := s.dial(network, address, timeout)
	if err != nil || s.embedded != nil {
		return c, err
	}

	return &recordingConn{Conn: c, server: s}, nil
}

// ExpireSession ends a session at once, as if its client had been silent for too long. When it
// returns, the session's ephemeral nodes are gone (but see [Lagging]), its watches are removed and
// its connections closed. The client finds out when it connects again. Any goroutine may call
// ExpireSession.
//
// The test fails if the session isn't known. The embedded server knows every session that hasn't
// ended. With [Attach], a session is known if [Server.Client] or [Link.Client] made its client, or
// if the client dials with [Server.Dial] or [Link.Dial]. (Expiring it a second time does nothing.)
// ExpireSession then ends the session with a copy of the client's password. That blocks for some
// milliseconds, or up to ten seconds if the server doesn't answer.
func (s *Server) ExpireSession(id int64) {
	s.tb.Helper()
	if s.embedded != nil {
		if !s.embedded.ExpireSession(id) {
			s.tb.Errorf("recipestest: expire: the server has no session %#x", id)
		}
		return
	}

	s.mu.Lock()
	// An attached server has no such function, so end the session in the client's place.
	victim := s.sessions[id]
	ended := victim != nil && victim.ended
	s.mu.Unlock()
	if ended {
		return
	}

	if victim == nil {
		s.tb.Errorf("recipestest: expire: session %#x is unknown: dial with Server.Dial or Link.Dial", id)
		return
	}

	if err := s.endSession(id, victim.password); err != nil {
		s.tb.Errorf("recipestest: expire: session %#x: %v", id, err)
		return
	}

	// ZooKeeper closes only the last connection of the session (ours), but the client may have
	// connected at the same time.
	s.mu.Lock()
	victim.ended = true
	conns := slices.Collect(maps.Keys(victim.conns))
	s.mu.Unlock()
	for _, c := range conns {
		c.Close()
	}
}

// addresses splits the connect string into its servers and the chroot.
func (s *Server) addresses() (hosts []string, chroot string) {
	list, chroot, ok := strings.Cut(s.connectString, "/")
	if ok && chroot != "" {
		chroot = "/" + strings.TrimSuffix(chroot, "/")
	}
	return strings.Split(list, ","), chroot
}

// A recordingConn is a connection of a client. It records the session in the answer to its
// handshake.
type recordingConn struct {
	net.Conn
	server *Server
	answer []byte // to the handshake, as far as it was read
	done   bool   // the answer is complete, or isn't an answer

	session *session // server.mu protects it, and closed too
	closed  bool
}

func (c *recordingConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.done {
		return n, err
	}

	c.answer = append(c.answer, b[:n]...)
	answer, _, broken := zkwire.CutFrame(c.answer, maxPacket)
	// A client must not resume a session that ExpireSession has ended.
	if answer != nil && !c.record(answer) {
		c.Close()
	}

	if answer != nil || broken != nil {
		c.done, c.answer = true, nil
	}

	return n, err
}

// record notes the session of an answer (length, protocol version, timeout, id, password). It
// returns false if ExpireSession has ended that session.
func (c *recordingConn) record(answer []byte) bool {
	granted, err := zkwire.ParseConnectResponse(answer[4:])
	id := granted.SessionID
	if err != nil || id == 0 || granted.Password == nil {
		return true
	}

	s := c.server
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.sessions[id] == nil {
		s.sessions[id] = &session{password: granted.Password, conns: make(map[*recordingConn]struct{})}
	}

	c.session = s.sessions[id]
	if !c.closed {
		c.session.conns[c] = struct{}{}
	}

	return !c.session.ended
}

func (c *recordingConn) Close() error {
	c.server.mu.Lock()
	c.closed = true
	if c.session != nil {
		delete(c.session.conns, c)
	}
	c.server.mu.Unlock()
	return c.Conn.Close()
}
