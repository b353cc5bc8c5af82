package recipestest

import (
	"encoding/binary"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

// A Server is a ZooKeeper for tests: an embedded one made by [Start], or one
// that runs elsewhere and was given to [Attach]. A test and its subtests may
// share it, in parallel: each takes its own [Server.Root], clients and links,
// and each is checked by itself when it ends.
// All methods are safe for concurrent use.
type Server struct {
	tb            testing.TB
	connectString string
	dial          zk.Dialer        // the leader, or what is attached
	spread        zk.Dialer        // its followers, if they lag
	embedded      *embedded.Server // nil if attached

	mu       sync.Mutex // guards what follows
	tenants  map[testing.TB]*tenant
	sessions map[int64]*session // seen by Dial; only if attached
}

// A session is what is needed to end it in its client's place.
type session struct {
	password []byte
	conns    map[*sniffer]struct{} // open ones
	ended    bool
}

// Attach makes a Server of a ZooKeeper that runs already, as an ensemble does
// in recipestest/ensemble. It does no I/O. connectString is a list of host:port
// with an optional chroot, which must exist, at its end.
//
// Whoever has to stop the ZooKeeper in tb.Cleanup must have registered that
// before Attach, so that the checks of this test still find it running.
func Attach(tb testing.TB, connectString string) *Server {
	tb.Helper()
	s := newServer(tb, connectString, net.DialTimeout)
	s.tenantOf(tb)
	return s
}

func newServer(tb testing.TB, connectString string, dial zk.Dialer) *Server {
	return &Server{
		tb:            tb,
		connectString: connectString,
		dial:          dial,
		tenants:       make(map[testing.TB]*tenant),
		sessions:      make(map[int64]*session),
	}
}

// ConnectString returns the addresses of the server, as protocol.Connect takes
// them. A client of an in-memory server needs [Server.Dial] too.
func (s *Server) ConnectString() string { return s.connectString }

// Dial connects to the server over a sound network. It is a zk.Dialer: use it
// for clients that are not made by [Server.Client], so that they reach a server
// in memory and [Server.ExpireSession] knows their sessions.
func (s *Server) Dial(network, address string, timeout time.Duration) (net.Conn, error) {
	if s.spread != nil {
		return s.spread(network, address, timeout)
	}
	c, err := s.dial(network, address, timeout)
	if err != nil || s.embedded != nil {
		return c, err
	}
	return &sniffer{Conn: c, server: s}, nil
}

// ExpireSession ends a session at once, as if its client had not been heard of
// for too long: its ephemeral nodes are gone when ExpireSession returns (but see [Lagging]), its
// watches are dropped and its connections closed. The client finds out when it
// connects again. It may be called from any goroutine.
//
// The test fails if the session is not known. The embedded server knows every
// session that has not ended; of others those are known, also when they were ended
// like this before, whose client was made by [Server.Client] or [Link.Client], or
// dials with [Server.Dial] or [Link.Dial]: they are ended with a copy of the
// client's password, which takes some milliseconds, ten seconds if the server does
// not answer.
func (s *Server) ExpireSession(id int64) {
	s.tb.Helper()
	if s.embedded != nil {
		if !s.embedded.ExpireSession(id) {
			s.tb.Errorf("recipestest: expire: the server has no session %#x", id)
		}
		return
	}
	s.mu.Lock()
	victim := s.sessions[id]
	ended := victim != nil && victim.ended
	s.mu.Unlock()
	if ended {
		return
	}
	if victim == nil {
		s.tb.Errorf("recipestest: expire: no session %#x was opened through Server.Dial or Link.Dial", id)
		return
	}
	if err := s.endSession(id, victim.password); err != nil {
		s.tb.Errorf("recipestest: expire: session %#x: %v", id, err)
		return
	}
	// ZooKeeper closes only the connection that the session had last, which was
	// ours. Another one may have come from the client at the same time.
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

// A sniffer is a client's connection that takes down the server's answer to the handshake as it is read.
type sniffer struct {
	net.Conn
	server *Server
	heard  []byte
	deaf   bool // nothing more to hear

	session *session // guarded by server.mu, as is the next
	closed  bool
}

func (c *sniffer) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.deaf {
		return n, err
	}
	c.heard = append(c.heard, b[:n]...)
	answer, _, broken := cutPacket(c.heard)
	if answer != nil && !c.takeDown(answer) {
		c.Close()
	}
	if answer != nil || broken != nil {
		c.deaf, c.heard = true, nil
	}
	return n, err
}

// takeDown takes the session out of the answer: length, protocol version,
// timeout, id, password. It returns false if the session has been ended by us.
func (c *sniffer) takeDown(answer []byte) bool {
	const head = 4 + 4 + 4 + 8
	if len(answer) < head {
		return true
	}
	id := int64(binary.BigEndian.Uint64(answer[12:]))
	password, _ := cutBuffer(answer[head:])
	if id == 0 || password == nil {
		return true
	}
	s := c.server
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sessions[id] == nil {
		s.sessions[id] = &session{password: password, conns: make(map[*sniffer]struct{})}
	}
	c.session = s.sessions[id]
	if !c.closed {
		c.session.conns[c] = struct{}{}
	}
	return !c.session.ended
}

func (c *sniffer) Close() error {
	c.server.mu.Lock()
	c.closed = true
	if c.session != nil {
		delete(c.session.conns, c)
	}
	c.server.mu.Unlock()
	return c.Conn.Close()
}
