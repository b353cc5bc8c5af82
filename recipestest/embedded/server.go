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

	// MaxPacket is the size of the largest request in bytes (the real server's jute.maxbuffer). A
	// larger request ends its connection. Defaults to 1048575.
	MaxPacket int

	// MaxCloseSession is the size in bytes of the largest record of a session's end: 4 bytes, and
	// for each of its ephemeral nodes 4 bytes and its path. Defaults to twice MaxPacket. If a
	// session with more is closed or expires, a real server writes the record and can never read
	// its log again (ZOOKEEPER-4306). This server ends before it writes anything: see [Server.Err].
	// The next server on its [Config.Dir] still has the session.
	MaxCloseSession int

	// EnforceAuth refuses every request of a connection that has sent no digest credential, and
	// ends the connection. (In the real server: enforce.auth.enabled.)
	EnforceAuth bool

	// EagerACL makes each server check access control lists by itself, without its leader. It
	// refuses a create, delete, setData or setACL that the lists it has applied forbid, or whose
	// own list is invalid. (In the real server: zookeeper.enableEagerACLCheck, 3.6 and later.) Such
	// an answer has zxid 0, and a follower gives it even if it lags or is isolated.
	EagerACL bool

	// EnforceQuota makes the server refuse a create or setData that exceeds a hard limit of a
	// quota, with the error -125. (In the real server: enforceQuota, 3.7 and later.) A client sets
	// a quota for /a as the real command line client does: it creates
	// /zookeeper/quota/a/zookeeper_limits with data like
	// "count=-1,bytes=-1=;byteHardLimit=-1;countHardLimit=5", and then
	// /zookeeper/quota/a/zookeeper_stats. The nearest quota above a node counts.
	EnforceQuota bool

	// ContainerInterval is how often the server deletes empty containers that had children, and TTL
	// nodes that are due. Defaults to 60 s. See also [Server.ReapContainers].
	ContainerInterval time.Duration

	// NoContainers makes the server refuse createContainer, as ZooKeeper 3.4 does. As for any
	// unknown operation, it answers with an error and ends the connection.
	NoContainers bool

	// TLS makes the server speak only TLS. It needs a certificate. By default the server speaks
	// plain text.
	TLS *tls.Config

	// Dir is a directory in which the server keeps its nodes and sessions. It is created if it
	// doesn't exist. If a server starts with the directory of a server that has ended (in any way),
	// it goes on with everything that server acknowledged: see "Data across restarts" in the
	// package documentation. By default nothing is kept.
	Dir string

	// Logger receives sessions and refused packets at level debug. With Dir it also receives a
	// warning if the last write was incomplete, and an error if the server ends because it can't
	// write. By default nothing is logged.
	Logger *slog.Logger

	sync    func(*os.File) error // makes the latest writes to a file durable
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

// A Server is a ZooKeeper inside the process. Any goroutine may call its methods.
type Server struct {
	cfg     Config
	log     *slog.Logger
	address string
	started time.Time
	conns   sync.WaitGroup // goroutines that serve or write to a connection
	helpers sync.WaitGroup // goroutines of the listener and of housekeep
	wake    chan struct{}  // wakes housekeep if due is earlier than before
	done    chan struct{}  // closed when the server ends
	journal *journal       // nil without a data directory
	front   *Follower      // clients of a server with a data directory read its tree

	// mu protects the fields below. It also protects every tree, session and connection, unless a
	// field says otherwise. It is held for one request at a time, and nothing blocks while it is
	// held.
	mu          sync.Mutex
	listener    net.Listener         // nil in memory and while stopped
	listening   map[string]*Follower // by address
	stopped     bool
	closed      bool
	err         error     // why the server has ended by itself
	tree        *tree     // the leader's
	durable     int64     // all transactions up to this zxid have reached the disk
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

// Start starts a server. It fails if cfg is invalid, if it can't listen on the address, or if
// [Config.Dir] is in use by another server, can't be read or written, or is damaged (the error then
// names the file and the offset). It blocks while it reads that directory. The caller must Close
// the server.
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
		// Session IDs include the start time, so that the next server doesn't use them again.
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

// firstZxid returns the first zxid of a server that starts now: 1024 for each millisecond since
// 1970, more than any server executes. So its zxids are greater than any zxid of the server before
// at the same address. With smaller zxids, it would have to refuse the former server's clients for
// ever (ZooKeeper refuses clients that are ahead of their server). JavaScript's numbers can still
// represent such zxids exactly.
func firstZxid(now time.Time) int64 { return now.UnixMilli() << 10 }

// ConnectString returns host and port of the leader, for a client to connect to. For a server in
// memory it returns an address that clients accept, for [Server.Dial].
func (s *Server) ConnectString() string { return s.address }

// Done returns a channel that is closed when the server has ended: because of [Server.Close] or
// [Config.MaxCloseSession], or because it can't write to [Config.Dir].
func (s *Server) Done() <-chan struct{} { return s.done }

// Err returns why the server has ended by itself. It is nil while the server runs, and after
// [Server.Close].
func (s *Server) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Close stops the server and discards its data, unless [Config.Dir] keeps it. It cuts every
// connection, and returns when all goroutines of the server have ended. It waits only for the
// current request, and until earlier writes have reached the disk. It returns the error of
// [Server.Err]. A second call does nothing more.
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

// end makes the server unreachable for ever. The caller holds mu.
func (s *Server) end() {
	if !s.closed {
		s.closed = true
		close(s.done)
		s.halt()
	}
}

// Stop makes the server unreachable until [Server.Resume]: connections are cut, and new connections
// are refused. Data and sessions are kept, and neither ages meanwhile. (An ensemble that has lost
// its quorum behaves the same.)
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

// Resume makes a stopped server reachable again, at the same address, together with its followers
// (except followers that were stopped by themselves). The timeout of every session starts again, as
// after a restart. Resume fails if the server is closed, or if another listener has taken an
// address.
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
// existed. When it returns, the session's ephemeral nodes are deleted, watches of other sessions
// have fired, and its connection (if any) is closed. Only clients of a [Follower] that lags see
// that later.
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

// ReapContainers does what the server itself does once per [Config.ContainerInterval]: it deletes
// containers that had children and have none left, and TTL nodes that are due. If a container
// becomes empty by this, it's deleted the next time.
func (s *Server) ReapContainers() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reap()
	s.await(s.tree.zxid)
}

// SetSequence sets the number of the next sequential child of the node at path. (Otherwise it's the
// number of children ever created there.) Use it to test the counter's end, 2147483647. It fails if
// the node doesn't exist.
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

// Dial connects in memory: to the follower that listens at the address (see [Follower.Listen]), and
// otherwise to the server itself. It has the signature of go-zookeeper's Dialer. It never blocks.
// While the server or the follower is stopped or closed, it fails with ECONNREFUSED. The connection
// buffers 64 KB in each direction and supports deadlines.
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

// listen accepts connections to f (or to the leader if f is nil) until the listener is closed. The
// caller must hold mu, unless the server isn't shared yet.
func (s *Server) listen(l net.Listener, f *Follower) {
	s.helpers.Go(func() {
		for {
			nc, err := l.Accept()
			switch {
			case err == nil:
				s.accept(nc, f)
			case errors.Is(err, net.ErrClosed):
				return
			default: // out of file descriptors, or the client has gone already
				select {
				case <-time.After(10 * time.Millisecond):
				case <-s.done:
				}
			}
		}
	})
}

// accept begins to serve a connection to f (or to the leader if f is nil). If the server or f is
// stopped or closed, it closes the connection and reports false.
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
