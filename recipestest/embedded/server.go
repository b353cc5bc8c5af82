package embedded

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/zkrecipes/zkrecipes/recipestest/internal/pipe"
)

// Config configures a server. The zero value is a server on a free port of 127.0.0.1 with
// ZooKeeper's own defaults.
type Config struct {
	// Address is the TCP address to listen on. Defaults to "127.0.0.1:0", a free port of the
	// loopback interface.
	Address string

	// InMemory starts the server without a listener: clients reach it only through [Server.Dial].
	// Required inside a testing/synctest bubble.
	InMemory bool

	// Version is the version of ZooKeeper that the server behaves like: "3.8" or "3.9". Defaults to
	// "3.8". "Versions" in the package documentation lists what differs.
	Version string

	// TickTime is the unit of session expiry: a session ends at the first tick after its timeout.
	// Whole milliseconds. Defaults to 2 s.
	TickTime time.Duration

	// MinSessionTimeout and MaxSessionTimeout bound the session timeouts that clients are granted.
	// They default to 2 and 20 ticks.
	MinSessionTimeout, MaxSessionTimeout time.Duration

	// MaxPacket is the size of the largest request in bytes, the real server's jute.maxbuffer. A
	// larger request ends its connection. Defaults to 1048575.
	MaxPacket int

	// MaxCloseSession is the size of the largest record of a session's end in bytes: 4, and for each
	// of its ephemeral nodes 4 and the length of its path. Defaults to twice MaxPacket. If
	// a session that is closed or expires has more, a real server writes the record and can never
	// read its log again (ZOOKEEPER-4306). This one ends before it writes anything: see
	// [Server.Err]. The next server on its [Config.Dir] still has the session.
	MaxCloseSession int

	// EnforceAuth refuses every request of a connection that has sent no digest credential, and
	// ends the connection. The real server does so with enforce.auth.enabled.
	EnforceAuth bool

	// EagerACL makes each server refuse by itself, without asking its leader, a create, delete,
	// setData or setACL that the access control lists it has applied forbid, or whose own list is
	// invalid. The real server does so with zookeeper.enableEagerACLCheck (3.6 and later). Such an
	// answer has zxid 0, and a follower gives it even if it lags or is isolated.
	EagerACL bool

	// EnforceQuota makes the server refuse a create or setData that exceeds a hard limit of a quota,
	// with the error -125. The real server does so with enforceQuota (3.7 and later). A client sets
	// a quota for /a as the real command line client does: it creates
	// /zookeeper/quota/a/zookeeper_limits with data like
	// "count=-1,bytes=-1=;byteHardLimit=-1;countHardLimit=5", and then
	// /zookeeper/quota/a/zookeeper_stats. The nearest quota above a node counts.
	EnforceQuota bool

	// ContainerInterval is how often the server deletes empty containers that had children, and TTL
	// nodes that are due. Defaults to 60 s. See also [Server.ReapContainers].
	ContainerInterval time.Duration

	// NoContainers makes the server refuse createContainer, as ZooKeeper 3.4 does. Like any unknown
	// operation it is answered with an error, and the connection ends.
	NoContainers bool

	// TLS makes the server speak TLS, and nothing else. It needs a certificate. By default the
	// server speaks plain text.
	TLS *tls.Config

	// Dir is a directory in which the server keeps its nodes and sessions. It is created if it does
	// not exist. A server that is started with the directory of one that has ended, in whatever
	// way, goes on with what that one had acknowledged: see "Data across restarts" in the package
	// documentation. By default nothing is kept.
	Dir string

	// Logger receives sessions and refused packets, at level debug. With Dir it also receives a
	// warning if the last write had not been completed, and an error if the server ends because it
	// cannot write. By default nothing is logged.
	Logger *slog.Logger

	sync    func(*os.File) error // makes what was written to a file last
	logSize int64                // see journal
}

func (cfg Config) withDefaults() (Config, error) {
	cfg.Address = cmp.Or(cfg.Address, "127.0.0.1:0")
	cfg.Version = cmp.Or(cfg.Version, version38)
	cfg.TickTime = cmp.Or(cfg.TickTime, 2*time.Second)
	cfg.MinSessionTimeout = cmp.Or(cfg.MinSessionTimeout, 2*cfg.TickTime)
	cfg.MaxSessionTimeout = cmp.Or(cfg.MaxSessionTimeout, max(20*cfg.TickTime, cfg.MinSessionTimeout))
	cfg.MaxPacket = cmp.Or(cfg.MaxPacket, 0xfffff)
	cfg.MaxCloseSession = cmp.Or(cfg.MaxCloseSession, int(min(int64(cfg.MaxPacket)+int64(max(cfg.MaxPacket, 1024)), math.MaxInt32)))
	cfg.ContainerInterval = cmp.Or(cfg.ContainerInterval, time.Minute)
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	cfg.logSize = cmp.Or(cfg.logSize, logSize)
	if cfg.sync == nil {
		cfg.sync = (*os.File).Sync
	}

	switch {
	case cfg.Version != version38 && cfg.Version != version39:
		return cfg, fmt.Errorf("version %q is neither %s nor %s", cfg.Version, version38, version39)
	case cfg.TickTime < time.Millisecond:
		return cfg, fmt.Errorf("tick time %v is shorter than 1ms", cfg.TickTime)
	case cfg.MinSessionTimeout < time.Millisecond || cfg.MinSessionTimeout > cfg.MaxSessionTimeout:
		return cfg, fmt.Errorf("session timeouts from %v to %v are not a valid range", cfg.MinSessionTimeout, cfg.MaxSessionTimeout)
	case cfg.MaxSessionTimeout > math.MaxInt32*time.Millisecond:
		return cfg, fmt.Errorf("session timeout %v is too long for the protocol", cfg.MaxSessionTimeout)
	case cfg.MaxPacket < 64 || cfg.MaxPacket > math.MaxInt32:
		return cfg, fmt.Errorf("packet limit of %d bytes is out of range", cfg.MaxPacket)
	case cfg.MaxCloseSession < 4:
		return cfg, fmt.Errorf("closeSession limit of %d bytes is out of range", cfg.MaxCloseSession)
	case cfg.ContainerInterval < 0:
		return cfg, fmt.Errorf("container interval %v is negative", cfg.ContainerInterval)
	}
	return cfg, nil
}

// A Server is a ZooKeeper inside the process. Its methods may be called from any goroutine.
type Server struct {
	cfg     Config
	log     *slog.Logger
	address string
	started time.Time
	conns   sync.WaitGroup // goroutines that serve or write to a connection
	helpers sync.WaitGroup // goroutines of the listener and of housekeep
	wake    chan struct{}  // tells housekeep that due is earlier than before
	done    chan struct{}  // closed when the server ends
	journal *journal       // nil without a data directory
	front   *Follower      // what the clients of a server with a data directory read

	// mu guards the fields below. It also guards every tree, session and connection, unless a field
	// says otherwise. It is held for the length of one request, and nothing blocks while it is
	// held.
	mu          sync.Mutex
	listener    net.Listener         // nil in memory and while stopped
	listening   map[string]*Follower // by address
	stopped     bool
	closed      bool
	err         error     // why the server has ended by itself
	tree        *tree     // the leader's
	durable     int64     // the zxid up to which all transactions have reached the disk
	settled     sync.Cond // signalled when durable grows, and when connections end
	followers   []*Follower
	sessions    map[int64]*session
	nextSession int64
	open        map[*conn]struct{}
	accepted    int
	due         time.Duration // when housekeep runs next, since started
	clockRate   float64       // of the clock that ends sessions
	reapAt      time.Duration // when it next deletes due nodes, since started
	received    int
	sent        int
	replyBuf    []byte
	eventBuf    []byte
}

// Start starts a server. It fails if cfg is invalid, if the address cannot be listened on, or if
// [Config.Dir] is in use by another server, cannot be read or written, or is damaged. Then the
// error names the file and the offset. It blocks while it reads that directory. The caller must
// Close the server.
func Start(cfg Config) (*Server, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("embedded: %w", err)
	}

	now := time.Now()
	s := &Server{
		cfg:       cfg,
		log:       cfg.Logger,
		address:   pipe.Address,
		started:   now,
		wake:      make(chan struct{}, 1),
		done:      make(chan struct{}),
		tree:      newTree(),
		listening: make(map[string]*Follower),
		sessions:  make(map[int64]*session),
		// Session ids include the start time, so the next server does not reuse them.
		nextSession: int64(uint64(now.UnixMilli()) << 24 >> 8),
		open:        make(map[*conn]struct{}),
		due:         never,
		reapAt:      never,
		durable:     math.MaxInt64,
		clockRate:   1,
	}
	s.tree.zxid = firstZxid(now)
	s.settled.L = &s.mu

	var l net.Listener
	if !cfg.InMemory {
		if l, err = net.Listen("tcp", cfg.Address); err != nil {
			return nil, fmt.Errorf("embedded: %w", err)
		}
		s.address = l.Addr().String()
	}

	if cfg.Dir != "" {
		if err := s.openJournal(); err != nil {
			if l != nil {
				l.Close()
			}
			return nil, fmt.Errorf("embedded: %w", err)
		}
	}

	if l != nil {
		s.listener = l
		s.listen(l, nil)
	}
	s.helpers.Go(s.housekeep)
	return s, nil
}

// firstZxid returns the zxid after which a server that starts now counts on: 1024 for each
// millisecond since 1970, more than any server carries out. So the zxids of a server on the same
// address are greater than all that clients have seen of the server before. With smaller ones, it
// would have to refuse these clients for ever, as ZooKeeper does with clients that know more than
// their server. JavaScript's numbers still hold such zxids exactly.
func firstZxid(now time.Time) int64 { return now.UnixMilli() << 10 }

// ConnectString returns host and port for a client to connect to, those of the leader. For a server
// in memory it returns an address that clients accept, for [Server.Dial].
func (s *Server) ConnectString() string { return s.address }

// Done returns a channel that is closed when the server has ended: by [Server.Close], because it
// cannot write to [Config.Dir], or because of [Config.MaxCloseSession].
func (s *Server) Done() <-chan struct{} { return s.done }

// Err returns why the server has ended by itself. It returns nil while the server runs, and after
// [Server.Close] has ended it.
func (s *Server) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Close stops the server and discards its data, unless [Config.Dir] keeps it. It cuts every
// connection and returns when all goroutines of the server have ended. It waits for the request in
// progress at most, and until the writes before have reached the disk. It returns the error of
// [Server.Err]. A second call does nothing else.
func (s *Server) Close() error {
	s.mu.Lock()
	s.end()
	s.mu.Unlock()

	s.helpers.Wait()
	s.conns.Wait()
	if s.journal != nil {
		s.journal.close()
	}
	return s.Err()
}

// end makes the server unreachable for good. The caller holds mu.
func (s *Server) end() {
	if !s.closed {
		s.closed = true
		close(s.done)
		s.halt()
	}
}

// Stop makes the server unreachable until [Server.Resume]: connections are cut and new ones
// refused. Data and sessions are kept, and neither ages meanwhile. An ensemble that has lost its
// quorum behaves the same.
func (s *Server) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.halt()
}

// halt closes all listeners and connections. The caller holds mu.
func (s *Server) halt() {
	s.stopped = true
	if s.listener != nil {
		s.listener.Close()
		s.listener = nil
	}
	for _, f := range s.listening {
		f.closeListener()
	}
	s.dropAll()
}

// Resume makes a stopped server reachable again, at the same address, and with it its followers
// that were not stopped by themselves. The timeout of every session starts again, as after a
// restart. Resume fails if the server is closed, or if another listener has taken an address.
func (s *Server) Resume() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return cmp.Or(s.err, fmt.Errorf("embedded: %w", net.ErrClosed))
	}
	if !s.stopped {
		return nil
	}

	if !s.cfg.InMemory {
		l, err := net.Listen("tcp", s.address)
		if err != nil {
			return fmt.Errorf("embedded: %w", err)
		}
		s.listener = l
		s.listen(l, nil)
	}

	s.stopped = false
	for _, f := range s.listening {
		if err := f.openListener(); err != nil {
			s.halt()
			return err
		}
	}
	for _, f := range s.followers {
		f.catchUp(never)
	}
	for _, ss := range s.sessions {
		s.touch(ss)
	}

	s.scheduleReaping()
	s.wakeBefore(s.reapAt)
	return nil
}

// DropConnections cuts every connection. The server stays reachable: a client that reconnects
// within its session timeout resumes its session.
func (s *Server) DropConnections() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropAll()
}

func (s *Server) dropAll() {
	for _, c := range s.connections() {
		s.drop(c)
	}
}

// connections returns the open connections in the order of their arrival.
func (s *Server) connections() []*conn {
	list := make([]*conn, 0, len(s.open))
	for c := range s.open {
		list = append(list, c)
	}
	slices.SortFunc(list, func(a, b *conn) int { return cmp.Compare(a.serial, b.serial) })
	return list
}

// ExpireSession ends a session as if its timeout had run out, and reports whether the session
// existed. The session's ephemeral nodes are deleted, watches of other sessions fire, and its
// connection, if any, is closed. All of that has happened when ExpireSession returns, except for
// clients of a [Follower] that lags.
func (s *Server) ExpireSession(id int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	ss, ok := s.sessions[id]
	if ok {
		s.expire(ss)
		s.await(s.tree.zxid)
	}
	return ok
}

// ReapContainers deletes what the server itself deletes once per [Config.ContainerInterval]:
// containers that had children and have none left, and TTL nodes that are due. A container that
// becomes empty by this is deleted the next time.
func (s *Server) ReapContainers() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reap()
	s.await(s.tree.zxid)
}

// SetSequence sets the number that the next sequential child of the node at path gets. Without it
// that is the number of children ever created there. It serves tests of the counter's end,
// 2147483647. It fails if the node does not exist.
func (s *Server) SetSequence(path string, next int32) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.tree.nodes[path]; !ok {
		return fmt.Errorf("embedded: set sequence: %s: no such node", path)
	}
	s.commit(transaction{changes: []change{{op: opSetSequence, path: path, creates: next}}})
	s.await(s.tree.zxid)
	return nil
}

// Dial connects in memory: to the follower that listens at the address, see [Follower.Listen], and
// with any other address to the server itself. Its signature is that of go-zookeeper's Dialer. It
// never blocks, and fails with ECONNREFUSED while the server or the follower is stopped or closed.
// The connection buffers 64 KB in each direction and supports deadlines.
func (s *Server) Dial(network, address string, timeout time.Duration) (net.Conn, error) {
	s.mu.Lock()
	f := s.listening[address]
	s.mu.Unlock()
	return s.dial(network, f)
}

// dial connects to f, or to the leader if f is nil.
func (s *Server) dial(network string, f *Follower) (net.Conn, error) {
	client, server := pipe.New()
	if !s.accept(server, f) {
		return nil, &net.OpError{Op: "dial", Net: network, Addr: client.RemoteAddr(), Err: syscall.ECONNREFUSED}
	}
	return client, nil
}

// listen accepts connections to f, or to the leader if f is nil, until the listener is closed. The
// caller holds mu, or has not shared the server yet.
func (s *Server) listen(l net.Listener, f *Follower) {
	s.helpers.Go(func() {
		for {
			nc, err := l.Accept()
			switch {
			case err == nil:
				s.accept(nc, f)
			case errors.Is(err, net.ErrClosed):
				return
			default: // out of file descriptors, or the client has already gone
				select {
				case <-time.After(10 * time.Millisecond):
				case <-s.done:
				}
			}
		}
	})
}

// accept begins to serve a connection to f, or to the leader if f is nil. It closes the connection
// and reports false if the server or f is stopped or closed.
func (s *Server) accept(nc net.Conn, f *Follower) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped || f != nil && (f.closed || f.stopped) {
		nc.Close()
		return false
	}

	s.accepted++
	c := newConn(s, s.secured(nc), s.accepted, f)
	s.open[c] = struct{}{}
	s.conns.Go(c.serve)
	return true
}

func sortSessions(list []*session) {
	slices.SortFunc(list, func(a, b *session) int { return cmp.Compare(a.id, b.id) })
}
