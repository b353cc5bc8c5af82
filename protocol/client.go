package protocol

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/conn"
	"github.com/zkrecipes/zkrecipes/internal/pace"
)

// A Client is a lasting connection to an ensemble. It opens a new [Session] whenever one has ended.
// Recipes are made from a client. It is safe for concurrent use.
type Client struct {
	*sessions // shared by all views that With makes

	aclFor     func(path string) []zk.ACL // nil: the default
	anyACL     bool                       // aclFor has one for every path
	ownerData  []byte                     // of contenders that are given none
	newBackOff func() backoff.BackOff     // nil: the default
	log        *slog.Logger
	observer   Observer
	observing  *callee
	err        error // a bad option of With, which the first operation returns

	bound, patient *Session // the current session, bound to this view; protected by mu
}

// sessions is the part of a client that its views have in common.
type sessions struct {
	ensemble  *conn.Ensemble
	resolve   conn.LookupFunc // see WithResolver
	chroot    string
	own       atomic.Pointer[[]zk.ACL] // for the identities of the credentials; nil if there is none
	listeners []listener
	existing  bool // the chroot must exist

	foreign foreign
	closing context.Context // done when Close begins
	close   context.CancelCauseFunc
	work    context.Context // done when background work has to stop
	stop    context.CancelFunc
	ended   chan struct{} // closed when Close has ended
	endErr  error         // what Close returns; set before ended is closed

	attempts atomic.Int64 // to connect that have failed

	noContainers atomic.Bool // the servers have said that they know none

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

func (c *Client) noChroot() error {
	return fmt.Errorf("%w: the chroot %s, see WithExistingChroot", zk.ErrNoNode, c.chroot)
}

// Session returns the current session. It blocks until there is one, and while the servers may have
// expired it because they have not heard from it for the session timeout. If ctx ends first it returns
// ctx's error, with the error of the last attempt to connect. After [Client.Close] it returns
// [ErrClosed]. If the servers have refused a credential before there ever was a session, it returns
// that error.
func (c *Client) Session(ctx context.Context) (*Session, error) { return c.session(ctx, false) }

// session is Session. The calls of a patient session wait for a server as long as it lasts.
func (c *Client) session(ctx context.Context, patient bool) (*Session, error) {
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
			return nil, conn.ContextError(ctx)
		}

		c.mu.Lock()
		s, changed, failed := c.current, c.changed, c.failed
		c.mu.Unlock()
		switch {
		case c.closing.Err() != nil:
			return nil, ErrClosed
		case failed != nil:
			return nil, failed
		case s != nil && s.Err() == nil && !s.lapsed():
			return c.bind(s, patient), nil
		}

		c.ensemble.Awaited()
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
func (c *Client) bind(s *session, patient bool) *Session {
	c.mu.Lock()
	defer c.mu.Unlock()
	bound := &c.bound
	if patient {
		bound = &c.patient
	}
	if *bound == nil || (*bound).session != s {
		*bound = &Session{session: s, client: c, patient: patient}
	}
	return *bound
}

// noSession returns the error of a call whose ctx ended before there was a session.
func (c *Client) noSession(ctx context.Context) error {
	c.mu.Lock()
	s, refused := cmp.Or(c.dialing, c.current), c.refused
	c.mu.Unlock()

	if refused != nil {
		return fmt.Errorf("%w: no session: %w", conn.ContextError(ctx), refused)
	}
	if s != nil {
		if failed := s.conn.LastFailure(); failed != nil {
			return fmt.Errorf("%w: no session: %w", conn.ContextError(ctx), failed)
		}
	}
	return fmt.Errorf("%w: no session", conn.ContextError(ctx))
}

// spawn runs f in a goroutine that Close waits for. Once Close has begun, it does nothing and
// returns false.
func (c *sessions) spawn(f func()) bool {
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

// review updates the client's state after a change of the connection of s.
func (c *Client) review(s *session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reviewLocked(s)
}

func (c *Client) reviewLocked(s *session) {
	switch {
	case c.current != s || s.over():
	case s.conn.Link() != nil:
		c.setState(Connected)
		c.announce() // to those who wait for a session that has lapsed
	default:
		c.setState(Suspended)
	}
}

// observed reports whether there is an observer.
func (c *Client) observed() bool { return c.observer != (noObserver{}) }

// observe posts an event to the observer, if there is one.
func (c *Client) observe(e Event) {
	if !c.observed() {
		return
	}
	event := e // e itself would be allocated without an observer, too
	event.Time = time.Now()
	if event.Context == nil {
		event.Context = context.Background()
	}
	c.foreign.post(c.observing, func() { c.observer.Observe(event) }, 0)
}

// setState posts a new state to the listeners. The caller holds mu.
func (c *Client) setState(state State) {
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
		c.foreign.post(l.callee, func() { l.f(state) }, state)
	}
}

// acl returns the ACL of a node that is to be created. The path has no chroot.
func (c *Client) acl(path string) []zk.ACL {
	if c.aclFor != nil {
		if acl := c.callACLFor(path); len(acl) > 0 {
			return acl
		}
	}
	if own := c.own.Load(); own != nil {
		return *own
	}
	return openACL
}

func (c *Client) callACLFor(path string) []zk.ACL {
	defer func() {
		if p := recover(); p != nil {
			panic(foreignError{pace.Foreign("ACL function", p)})
		}
	}()
	return c.aclFor(path)
}

// openACL is made once, as each call asks for its ACL several times.
var openACL = zk.WorldACL(zk.PermAll)
