package protocol

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/buffer"
)

// closeTimeout bounds Close.
const closeTimeout = 2 * time.Second

// sendBuffer is the size of the longest frame that a server with the default jute.maxbuffer
// accepts. A longer one fails in zk.Conn. The server would cut the connection, which all users of
// the session share.
const sendBuffer = 4 + 1<<20 - 1

func init() {
	buffer.Limit = func(bytes int) any {
		return connectOption(func(c *Client) error {
			c.buffers = bytes
			return nil
		})
	}
}

// A Client is a lasting connection to an ensemble. It opens a new [Session] whenever one has ended.
// Recipes are made from a client. It is safe for concurrent use.
type Client struct {
	*sessions // shared by all views that With makes

	aclFor     func(path string) []zk.ACL // nil: the default
	ownerData  []byte                     // of contenders that are given none
	newBackOff func() backoff.BackOff
	log        *slog.Logger
	observer   Observer
	err        error // a bad option of With, which the first operation returns

	bound *Session // the current session, bound to this view; protected by mu
}

// sessions is the part of a client that its views have in common.
type sessions struct {
	servers   []string
	chroot    string
	timeout   time.Duration
	dial      func(ctx context.Context, network, address string, timeout time.Duration) (net.Conn, error)
	lookup    func(ctx context.Context, host string) ([]string, error) // nil if dial resolves names
	tls       func() (*tls.Config, error)                              // for the next handshake; nil without TLS
	auth      []credential
	listeners []func(State)
	buffers   int // how long a packet may be; 0: the server alone limits it

	events  dispatcher
	closing context.Context // done when Close begins
	close   context.CancelCauseFunc
	work    context.Context // done when background work has to stop
	stop    context.CancelFunc
	ended   chan struct{} // closed when Close has ended
	endErr  error         // what Close returns; set before ended is closed

	attempts atomic.Int64 // to connect that have failed

	mu      sync.Mutex // protects what follows; nothing blocks while it is held
	current *session   // nil while there is none
	dialing *session   // the session that is to become current
	changed chan struct{}
	failed  error // why there will never be a session
	refused error // why the last attempt to open a session failed, if the servers refused a credential
	state   State
	outage  outage
	granted map[time.Duration]bool // session timeouts that were logged
	stopped bool                   // no goroutine may be started any more
	running sync.WaitGroup

	unclosed map[*session]error // lost sessions that are not known to be closed, and why
}

// Connect opens a session with the ensemble that the connect string names, such as
// "zk1:2181,zk2:2181,zk3:2181/app". The part from the slash on is a chroot, which is put in front
// of all paths. The default port is 2181.
//
// Connect blocks until there is a session, or ctx ends. It then returns ctx's error, with the error
// of the last attempt to connect. Before any I/O, it returns an error for a bad connect string or a
// bad option. If the servers refuse a credential it returns an error that wraps [zk.ErrAuthFailed].
// ctx bounds Connect alone: the client lives until [Client.Close].
func Connect(ctx context.Context, connectString string, opts ...ConnectOption) (*Client, error) {
	c := &Client{
		sessions: &sessions{
			timeout: 10 * time.Second,
			dial:    dialNet,
			lookup:  net.DefaultResolver.LookupHost,
			changed: make(chan struct{}),
			ended:   make(chan struct{}),
			granted: make(map[time.Duration]bool),

			unclosed: make(map[*session]error),
		},
		ownerData:  thisProcess(),
		newBackOff: defaultBackOff,
		log:        slog.New(slog.DiscardHandler),
		observer:   noObserver{},
	}

	var err error
	if c.servers, c.chroot, err = parseConnectString(connectString); err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	for _, o := range opts {
		if o == nil {
			return nil, errors.New("connect: nil option")
		}
		if err := o.applyConnect(c); err != nil {
			return nil, fmt.Errorf("connect: %w", err)
		}
	}
	if c.tls != nil {
		c.dial, c.lookup = dialTLS(c.dial, c.lookup, c.tls), nil
	}
	if ctx == nil {
		return nil, fmt.Errorf("connect: %w", errNilContext)
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("connect: %w", contextError(ctx))
	}

	c.closing, c.close = context.WithCancelCause(context.Background())
	c.work, c.stop = context.WithCancel(context.Background())
	c.mu.Lock()
	c.beginOutage()
	c.mu.Unlock()
	c.spawn(c.run)
	if _, err := c.Session(ctx); err != nil {
		c.Close()
		return nil, fmt.Errorf("connect to %s: %w", connectString, err)
	}
	return c, nil
}

// With returns a client with other options on the same sessions. Closing either client closes both.
// With does no I/O. A bad option is returned by the first operation of the new client.
func (c *Client) With(opts ...Option) *Client {
	view := &Client{
		sessions: c.sessions, aclFor: c.aclFor, ownerData: c.ownerData, newBackOff: c.newBackOff, log: c.log, observer: c.observer, err: c.err,
	}
	for _, o := range opts {
		if o == nil {
			view.err = errors.Join(view.err, errors.New("nil option"))
		} else if err := o.apply(view); err != nil {
			view.err = errors.Join(view.err, err)
		}
	}
	return view
}

// Session returns the current session. It blocks until there is one. If ctx ends first it returns
// ctx's error, with the error of the last attempt to connect. After [Client.Close] it returns
// [ErrClosed]. If the servers have refused a credential before there ever was a session, it returns
// that error.
func (c *Client) Session(ctx context.Context) (*Session, error) {
	switch {
	case c == nil || c.sessions == nil:
		return nil, errNoClient
	case c.err != nil:
		return nil, c.err
	case ctx == nil:
		return nil, errNilContext
	}
	for {
		if ctx.Err() != nil {
			return nil, contextError(ctx)
		}

		c.mu.Lock()
		s, changed, failed := c.current, c.changed, c.failed
		c.mu.Unlock()
		switch {
		case c.closing.Err() != nil:
			return nil, ErrClosed
		case failed != nil:
			return nil, failed
		case s != nil && s.Err() == nil:
			return c.bind(s), nil
		}

		select {
		case <-changed:
		case <-c.closing.Done():
		case <-ctx.Done():
			return nil, c.noSession(ctx)
		}
	}
}

// State returns the state of the client, for health checks. It does no I/O, and is computed from
// the clocks when it is called: a session that can no longer be trusted is [Lost], though no
// listener has been told yet. Recipes can be used in any state but [Closed]. State is safe for
// concurrent use.
func (c *Client) State() State {
	c.mu.Lock()
	s, state := c.current, c.state
	c.mu.Unlock()
	if state != Closed && s != nil && s.Err() != nil {
		return Lost
	}
	return state
}

// bind returns s bound to this view. It returns the same value as long as s is the current session.
func (c *Client) bind(s *session) *Session {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bound == nil || c.bound.session != s {
		c.bound = &Session{s, c, nil}
	}
	return c.bound
}

// noSession returns the error of a call whose ctx ended before there was a session.
func (c *Client) noSession(ctx context.Context) error {
	c.mu.Lock()
	s, refused := c.dialing, c.refused
	c.mu.Unlock()

	if refused != nil {
		return fmt.Errorf("%w: no session: %w", contextError(ctx), refused)
	}
	if s != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.lastFail != nil {
			return fmt.Errorf("%w: no session: %w", contextError(ctx), s.lastFail)
		}
	}
	return fmt.Errorf("%w: no session", contextError(ctx))
}

// Close ends the session, which deletes its ephemeral nodes, and waits for the client's goroutines.
// All that is held is lost. Calls that wait return [ErrClosed] at once, and so do later ones.
//
// Close blocks for two seconds at most, whatever the network does. It returns an error if a session
// could not be closed. The nodes of that session stay until the servers expire it. Close does not
// wait for a call of a state listener or an observer that is under way. It may be called again,
// from anywhere, and returns the same.
func (c *Client) Close() error {
	c.mu.Lock()
	first := !c.stopped
	c.stopped = true
	c.close(ErrClosed)
	c.outage.stop()
	s, dialing := c.current, c.dialing
	c.mu.Unlock()
	if !first {
		<-c.ended
		return c.endErr
	}

	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	defer context.AfterFunc(ctx, c.stop)()
	if dialing != nil {
		dialing.finish(ErrClosed)
	}
	if s != nil {
		s.finish(fmt.Errorf("%w: %w", ErrLost, ErrClosed))
		c.endErr = s.dispose(ctx)
	}

	joined := make(chan struct{})
	go func() { c.running.Wait(); close(joined) }()
	select {
	case <-joined:
	case <-ctx.Done(): // a user's dialer does not return
	}

	c.mu.Lock()
	for _, err := range c.unclosed {
		c.endErr = errors.Join(c.endErr, err)
	}
	c.setState(Closed)
	c.mu.Unlock()
	c.stop()
	c.events.drain(ctx)
	close(c.ended)
	return c.endErr
}

// spawn runs f in a goroutine that Close waits for. Once Close has begun, it does nothing and
// returns false.
func (c *Client) spawn(f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return false
	}
	c.running.Go(f)
	return true
}

// run opens sessions, one after the other, until Close begins.
func (c *Client) run() {
	connected := false
	for short := 0; ; short++ {
		// A session that ends as soon as it has begun must not make us spin.
		sleep(redialAfter(short, 1, c.timeout), c.closing.Done())
		if c.closing.Err() != nil {
			return
		}

		s := newSession(c)
		if err := c.open(s); err != nil {
			s.finish(err)
			refused := errors.Is(err, zk.ErrAuthFailed)
			if refused {
				// Nothing was done in the session, and closing it may take a credential, too.
				s.mu.Lock()
				s.expired = true
				s.mu.Unlock()
			}
			s.dispose(c.work)
			if !refused {
				continue
			}
			if !connected {
				c.fail(err)
				return
			}

			// The servers may accept the credential again in a while, as they have before.
			c.refuse(err)
			sleep(c.timeout, c.closing.Done())
			continue
		}

		connected = true
		began := time.Now()
		s.keep()
		if time.Since(began) > s.Timeout() {
			short = 0
		}
		if !c.retire(s) {
			return
		}
	}
}

// open makes s the current session as soon as the ensemble grants it.
func (c *Client) open(s *session) error {
	d := &dialler{session: s, route: newRoute(c.sessions)}
	conn, events, err := zk.Connect(c.servers, c.timeout,
		zk.WithDialer(d.dial),
		zk.WithHostProvider(d),
		zk.WithEventCallback(s.event),
		zk.WithMaxConnBufferSize(cmp.Or(c.buffers, sendBuffer)),
		zk.WithMaxBufferSize(c.buffers),
		zk.WithLogger(logger{s}),
		zk.WithLogInfo(false))
	if err != nil {
		return err
	}
	s.conn, s.events = conn, events

	c.mu.Lock()
	c.dialing = s
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		c.dialing = nil
		c.mu.Unlock()
	}()

	select {
	case <-s.began:
	case <-s.Done():
		return context.Cause(s.life)
	case <-c.closing.Done():
		return ErrClosed
	}
	if err := c.authenticate(s); err != nil {
		return err
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return ErrClosed
	}
	c.current, c.dialing, c.refused = s, nil, nil // at once: Close ends each of the two in its own way
	c.announce()
	c.setState(Connected)
	c.reviewLocked(s)
	return nil
}

// fail makes all calls that wait for a session return err: there will never be one.
func (c *Client) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failed = err
	c.announce()
}

// refuse notes that the servers refuse a credential which they have accepted before.
func (c *Client) refuse(err error) {
	c.log.Warn("no session", "error", err, "next attempt after", c.timeout)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refused = err
}

// authenticate sends the credentials, which zk.Conn then repeats on every connection of the
// session.
func (c *Client) authenticate(s *session) error {
	for _, a := range c.auth {
		_, err := Do(s.life, s.base, func(conn *zk.Conn) (struct{}, error) {
			return struct{}{}, conn.AddAuth(a.scheme, a.secret())
		})
		if err != nil {
			return fmt.Errorf("auth %s: %w", a.identity(), err)
		}
	}
	return nil
}

// retire takes a session that is over out of use, and starts to close it at the servers. It returns
// false if Close does that.
func (c *Client) retire(s *session) bool {
	c.mu.Lock()
	mine := !c.stopped
	if mine {
		c.current = nil
		c.setState(Lost)
		c.unclosed[s] = unclosed(s.ID())
	}
	c.mu.Unlock()
	if !mine {
		return false
	}

	c.log.Warn("session lost", "session", hexID(s.ID()), "error", s.Err())
	dispose := func() {
		err := s.dispose(c.work)
		c.mu.Lock()
		defer c.mu.Unlock()
		if err == nil {
			delete(c.unclosed, s)
		} else {
			c.unclosed[s] = err
		}
	}
	if !c.spawn(dispose) {
		dispose()
	}
	return true
}

// announce wakes all calls that wait for a session. The caller holds mu.
func (c *Client) announce() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// review updates the client's state after a change of the connection of s.
func (c *Client) review(s *session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reviewLocked(s)
}

func (c *Client) reviewLocked(s *session) {
	s.mu.Lock()
	connected, over := s.wire != nil, s.err != nil
	s.mu.Unlock()

	switch {
	case c.current != s || over:
	case connected:
		c.setState(Connected)
	default:
		c.setState(Suspended)
	}
}

func shuffled(servers []string) []string {
	servers = slices.Clone(servers)
	rand.Shuffle(len(servers), func(i, j int) { servers[i], servers[j] = servers[j], servers[i] })
	return servers
}
