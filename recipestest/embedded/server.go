package embedded

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/zkrecipes/zkrecipes/recipestest/internal/pipe"
)

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

	// Listen before opening the directory, so that a wrong address changes no files.
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
		// Accept clients last: they must find the data loaded.
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

	// Listeners start connections, and connections wait for the disk. So they end in this order.
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

	// openListener does nothing while the server is stopped.
	s.stopped = false
	for _, f := range s.listening {
		if err := f.openListener(); err != nil {
			s.halt()
			return err
		}
	}

	// In an outage followers catch up whatever their lag, and no session ages.
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
	return slices.SortedFunc(maps.Keys(s.open), func(a, b *conn) int { return cmp.Compare(a.serial, b.serial) })
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
	c := newConn(s, secured(nc, s.cfg.TLS), s.accepted, f)
	s.open[c] = struct{}{}
	s.conns.Go(c.serve)
	return true
}

func sortSessions(list []*session) {
	slices.SortFunc(list, func(a, b *session) int { return cmp.Compare(a.id, b.id) })
}
