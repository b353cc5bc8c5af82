package embedded

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"
)

// Config says how a server is to behave. The zero value is a server on a free
// port of 127.0.0.1 with ZooKeeper's own defaults.
type Config struct {
	// Address is the TCP address to listen on. Defaults to "127.0.0.1:0", a free
	// port of the loopback interface.
	Address string

	// InMemory is for servers without a listener: clients reach them through
	// [Server.Dial] only. Required inside a testing/synctest bubble.
	InMemory bool

	// TickTime is the unit of session expiry: a session ends at the first tick
	// after its timeout. Whole milliseconds. Defaults to 2 s.
	TickTime time.Duration

	// MinSessionTimeout and MaxSessionTimeout bound the timeouts that clients are
	// granted. Default to 2 and 20 ticks.
	MinSessionTimeout, MaxSessionTimeout time.Duration

	// MaxPacket is the size of the largest request in bytes, the jute.maxbuffer of
	// the real server. A larger one costs the client its connection. Defaults to
	// 1048575.
	MaxPacket int

	// ContainerInterval is how often containers that have lost their last child
	// and TTL nodes that are due get deleted. Defaults to 60 s. See also
	// [Server.ReapContainers].
	ContainerInterval time.Duration

	// Logger is told about sessions and refused packets, at level debug. Defaults
	// to silence.
	Logger *slog.Logger
}

func (cfg Config) withDefaults() (Config, error) {
	cfg.Address = cmp.Or(cfg.Address, "127.0.0.1:0")
	cfg.TickTime = cmp.Or(cfg.TickTime, 2*time.Second)
	cfg.MinSessionTimeout = cmp.Or(cfg.MinSessionTimeout, 2*cfg.TickTime)
	cfg.MaxSessionTimeout = cmp.Or(cfg.MaxSessionTimeout, max(20*cfg.TickTime, cfg.MinSessionTimeout))
	cfg.MaxPacket = cmp.Or(cfg.MaxPacket, 0xfffff)
	cfg.ContainerInterval = cmp.Or(cfg.ContainerInterval, time.Minute)
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	switch {
	case cfg.TickTime < time.Millisecond:
		return cfg, fmt.Errorf("tick time %v is shorter than 1ms", cfg.TickTime)
	case cfg.MinSessionTimeout < time.Millisecond || cfg.MinSessionTimeout > cfg.MaxSessionTimeout:
		return cfg, fmt.Errorf("session timeouts from %v to %v are no range", cfg.MinSessionTimeout, cfg.MaxSessionTimeout)
	case cfg.MaxSessionTimeout > math.MaxInt32*time.Millisecond:
		return cfg, fmt.Errorf("session timeout %v is too long for the protocol", cfg.MaxSessionTimeout)
	case cfg.MaxPacket < 64 || cfg.MaxPacket > math.MaxInt32:
		return cfg, fmt.Errorf("packet limit of %d bytes is out of range", cfg.MaxPacket)
	case cfg.ContainerInterval < 0:
		return cfg, fmt.Errorf("container interval %v is negative", cfg.ContainerInterval)
	}
	return cfg, nil
}

// A Server is an in-memory ZooKeeper. Its methods may be called from any goroutine.
type Server struct {
	cfg     Config
	log     *slog.Logger
	address string
	started time.Time
	conns   sync.WaitGroup // goroutines that serve or write to a connection
	keeper  sync.WaitGroup // the listener's and the housekeeper's
	wake    chan struct{}  // tells the housekeeper that due has come closer
	done    chan struct{}  // closed by Close

	// mu guards all below, and every tree, session and connection as far as they
	// do not say otherwise. It is held for the length of one request; nothing
	// blocks meanwhile.
	mu          sync.Mutex
	listener    net.Listener // nil in memory and while stopped
	stopped     bool
	closed      bool
	tree        *tree // the leader's
	followers   []*Follower
	sessions    map[int64]*session
	nextSession int64
	open        map[*conn]struct{}
	accepted    int
	due         time.Duration // when the housekeeper runs next, since started
	reapAt      time.Duration // when it reaps
	received    int
	sent        int
	replyBuf    []byte
	eventBuf    []byte
}

// Start starts a server. It fails if the configuration makes no sense or the
// address cannot be listened on. The caller must Close the server.
func Start(cfg Config) (*Server, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("embedded: %w", err)
	}
	now := time.Now()
	s := &Server{
		cfg:      cfg,
		log:      cfg.Logger,
		address:  memoryAddress,
		started:  now,
		wake:     make(chan struct{}, 1),
		done:     make(chan struct{}),
		tree:     newTree(),
		sessions: make(map[int64]*session),
		// Sessions of one server run, and of the next, have different ids.
		nextSession: int64(uint64(now.UnixMilli()) << 24 >> 8),
		open:        make(map[*conn]struct{}),
		due:         never,
		reapAt:      never,
	}
	if !cfg.InMemory {
		l, err := net.Listen("tcp", cfg.Address)
		if err != nil {
			return nil, fmt.Errorf("embedded: %w", err)
		}
		s.address = l.Addr().String()
		s.listen(l)
	}
	s.keeper.Go(s.keepHouse)
	return s, nil
}

// ConnectString returns host and port for a client to connect to. Of a server
// in memory it returns an address that clients accept and that [Server.Dial] ignores.
func (s *Server) ConnectString() string { return s.address }

// Close stops the server and forgets its data. It cuts every connection and
// returns when every goroutine of the server has ended, which takes no longer
// than finishing the request in hand. Closing again does nothing.
func (s *Server) Close() error {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		close(s.done)
		s.halt()
	}
	s.mu.Unlock()
	s.keeper.Wait()
	s.conns.Wait()
	return nil
}

// Stop makes the server unreachable until [Server.Resume]: connections are cut
// and new ones refused. Data and sessions are kept and do not age meanwhile, as with an
// ensemble that has lost its quorum.
func (s *Server) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.halt()
}

// halt closes the listener and all connections. The caller holds mu.
func (s *Server) halt() {
	s.stopped = true
	if s.listener != nil {
		s.listener.Close()
		s.listener = nil
	}
	s.dropAll()
}

// Resume makes a stopped server reachable again, at the same address. Every
// session gets its full timeout anew, as after a restart. It fails if the
// server is closed or the address has been taken in the meantime.
func (s *Server) Resume() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fmt.Errorf("embedded: %w", net.ErrClosed)
	}
	if !s.stopped {
		return nil
	}
	if !s.cfg.InMemory {
		l, err := net.Listen("tcp", s.address)
		if err != nil {
			return fmt.Errorf("embedded: %w", err)
		}
		s.listen(l)
	}
	s.stopped = false
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

// DropConnections cuts every connection. The server stays reachable, and clients
// that come back in time find their sessions alive.
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

// ExpireSession ends a session as if its timeout had run out: its ephemeral
// nodes are deleted, watches of others fire, and its connection, if it has one,
// is closed. When ExpireSession returns all of that has happened, except for clients of
// a [Follower] that lags. It reports whether there was such a session.
func (s *Server) ExpireSession(id int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	ss, ok := s.sessions[id]
	if ok {
		s.expire(ss)
	}
	return ok
}

// ReapContainers deletes what the server would delete by itself once per
// [Config.ContainerInterval]: containers that had children and have none any
// more, and TTL nodes that are due. A container's parent is not looked at
// before the next time.
func (s *Server) ReapContainers() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reap()
}

// SetSequence sets the number that the next sequential child of the node at
// path will carry, which is otherwise the number of children ever created
// there. It is for testing what happens at the end of the counter, 2147483647.
// It fails if there is no such node.
func (s *Server) SetSequence(path string, next int32) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.tree.nodes[path]; !ok {
		return fmt.Errorf("embedded: set sequence: %s: no such node", path)
	}
	s.commit(transaction{changes: []change{{op: opSetSequence, path: path, creates: next}}})
	return nil
}

// Dial connects to this server in memory, whatever the network and the address
// say. Its form is that of go-zookeeper's Dialer. It never blocks, and fails
// with ECONNREFUSED while the server is stopped or closed. The connection
// buffers a little in each direction and honours deadlines.
func (s *Server) Dial(network, address string, timeout time.Duration) (net.Conn, error) {
	return s.dial(network, nil)
}

// dial connects to a follower, or to the leader if that is nil.
func (s *Server) dial(network string, f *Follower) (net.Conn, error) {
	client, server := newPipe()
	if !s.accept(server, f) {
		return nil, &net.OpError{Op: "dial", Net: network, Addr: client.RemoteAddr(), Err: syscall.ECONNREFUSED}
	}
	return client, nil
}

// listen accepts connections until the listener is closed. The caller holds mu,
// or is the only one to know the server.
func (s *Server) listen(l net.Listener) {
	s.listener = l
	s.keeper.Go(func() {
		for {
			nc, err := l.Accept()
			switch {
			case err == nil:
				s.accept(nc, nil)
			case errors.Is(err, net.ErrClosed):
				return
			default: // out of file descriptors, or a client gone already
				select {
				case <-time.After(10 * time.Millisecond):
				case <-s.done:
				}
			}
		}
	})
}

// accept begins to serve a connection to a follower, or to the leader if that is nil, unless it is stopped.
func (s *Server) accept(nc net.Conn, f *Follower) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped || f != nil && f.closed {
		nc.Close()
		return false
	}
	s.accepted++
	c := newConn(s, nc, s.accepted, f)
	s.open[c] = struct{}{}
	s.conns.Go(c.serve)
	return true
}

func sortSessions(list []*session) {
	slices.SortFunc(list, func(a, b *session) int { return cmp.Compare(a.id, b.id) })
}
