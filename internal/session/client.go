package session

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/conn"
)

// A Client opens a session whenever the one before has ended. All its views share it. Its exported
// fields must be set before [Client.Start]. It is safe for concurrent use.
type Client struct {
	*Setup
	Foreign Foreign
	Root    *View        // the view that Connect made
	Tell    func(Outage) // passes an outage to the observer
	Retried Retried      // for requests of the client's own

	listeners []listener

	close  context.CancelCauseFunc // ends Closing
	stop   context.CancelFunc      // ends Work
	ended  chan struct{}           // closed when Close has ended
	endErr error                   // the result of Close; set before ended is closed

	attempts atomic.Int64 // failed attempts to connect

	mu      sync.Mutex // protects the fields below; nothing blocks while it is held
	current *Session   // nil while there is no session
	dialing *Session   // the session that is to become current
	changed chan struct{}
	failed  error // why there will never be a session
	refused error // the servers refused a credential when a session was last opened
	state   State
	outage  outage
	granted time.Duration // the session timeout that was last logged
	stopped bool          // no goroutine can be started any more
	running sync.WaitGroup

	unclosed map[*Session]error // lost sessions that are perhaps still open, and why
}

// An Access is a client with one of its views.
type Access struct {
	*Client
	View View
}

// New returns a client that doesn't connect yet, with its first view.
func New() *Access {
	a := &Access{Client: &Client{
		Setup:    &Setup{Ensemble: conn.NewEnsemble()},
		changed:  make(chan struct{}),
		ended:    make(chan struct{}),
		unclosed: make(map[*Session]error),
	}}
	a.Closing, a.close = context.WithCancelCause(context.Background())
	a.Work, a.stop = context.WithCancel(context.Background())
	a.Ensemble.Spawn, a.Refusals = a.Spawn, refusals
	a.Root, a.View.Setup, a.View.Log = &a.View, a.Setup, a.Foreign.defaultLog()
	return a
}

// Listen has f called for each change of state. Call it before [Client.Start].
func (c *Client) Listen(f func(State), callee *Callee) {
	c.listeners = append(c.listeners, listener{f, callee})
}

// Start begins to connect.
func (c *Client) Start() {
	if c.Resolve != nil { // in whatever order the options were
		c.Lookup = c.Resolve
	}
	c.mu.Lock()
	c.beginOutage()
	c.mu.Unlock()
	c.Spawn(c.run)
}

// Current returns the current session. It blocks until there is one: see protocol's Client.Session.
func (c *Access) Current(ctx context.Context) (*Session, error) {
	switch {
	case c.View.Err != nil:
		return nil, c.View.Err
	case ctx == nil:
		return nil, ErrNilContext
	}

	for {
		if ctx.Err() != nil {
			return nil, conn.ContextError(ctx)
		}

		c.mu.Lock()
		s, changed, failed := c.current, c.changed, c.failed
		c.mu.Unlock()
		switch {
		case c.Closing.Err() != nil:
			return nil, ErrClosed
		case failed != nil:
			return nil, failed
		case s != nil && s.Err() == nil && !s.lapsed():
			return s, nil
		}

		c.Awaited()

		select {
		case <-changed:
		case <-c.Closing.Done():
		case <-ctx.Done():
			return nil, c.noSession(ctx)
		}
	}
}

// State returns the state of the client, computed from the clocks.
func (c *Client) State() State {
	c.mu.Lock()
	s, state := c.current, c.state
	c.mu.Unlock()
	// The clocks can say that the session has ended before its goroutine notices.
	if state != Closed && s != nil && s.Err() != nil {
		return Lost
	}
	return state
}

// noSession returns the error of a call whose ctx ended before there was a session.
func (c *Client) noSession(ctx context.Context) error {
	c.mu.Lock()
	s, why := cmp.Or(c.dialing, c.current), c.refused
	c.mu.Unlock()

	if why == nil && s != nil {
		why = s.Conn.LastFailure()
	}
	if why == nil {
		return fmt.Errorf("%w: no session", conn.ContextError(ctx))
	}

	return fmt.Errorf("%w: no session: %w", conn.ContextError(ctx), why)
}

// Spawn runs f in a goroutine that Close waits for. Once Close has begun, Spawn does nothing and
// returns false.
func (c *Client) Spawn(f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return false
	}
	c.running.Go(f)
	return true
}

// announce wakes all calls that wait for a session. The caller holds mu.
func (c *Client) announce() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// review updates the state after a change of the connection of s. The caller holds mu.
func (c *Client) review(s *Session) {
	switch {
	case c.current != s || s.over():
	case s.Conn.Link() != nil:
		c.setState(Connected)
		c.announce() // wakes calls for which the session had lapsed
	default:
		c.setState(Suspended)
	}
}

// setState posts a new state to the listeners. The caller holds mu.
func (c *Client) setState(state State) {
	// Closed is the last state.
	if state == c.state || c.state == Closed {
		return
	}

	c.state = state
	switch state {
	case Connected:
		c.endOutage()
	case Suspended, Lost:
		c.beginOutage()
	}

	for _, l := range c.listeners {
		c.Foreign.Post(l.Callee, func() { l.f(state) }, state)
	}
}
