package protocol

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/session"
)

// These are the doors to the kernel: see [session.Door].
type (
	clientDoor  = session.Door[session.Access]
	sessionDoor = session.Door[session.Session]
)

// A Client is a lasting connection to an ensemble. It opens a new [Session] whenever the session
// before has ended. It is safe for concurrent use.
type Client struct {
	clientDoor
	observer  Observer // or nil
	observing *session.Callee
}

// With returns a client with other options on the same sessions. Closing either client closes both.
// With does no I/O. A bad option is returned by the new client's first operation.
func (c *Client) With(opts ...Option) *Client {
	if c == nil || session.Open(c) == nil {
		return new(Client) // its first operation says that Connect did not make it
	}

	access := *session.Open(c)
	view := &Client{session.Behind(&access), c.observer, c.observing}

	for _, o := range opts {
		if o == nil {
			access.View.Err = errors.Join(access.View.Err, errors.New("nil option"))
		} else if err := o.apply(view); err != nil {
			access.View.Err = errors.Join(access.View.Err, err)
		}
	}

	return view
}

// Session returns the current session. It blocks until there is a session. It also blocks while the
// session has been silent for a session timeout, because the servers can have expired it. If ctx
// ends first, it returns ctx's error with the error of the last attempt to connect. After
// [Client.Close] it returns [ErrClosed]. If the servers refused a credential before the first
// session, it returns that error.
func (c *Client) Session(ctx context.Context) (*Session, error) {
	if c == nil || session.Open(c) == nil {
		return nil, session.ErrNoClient
	}

	access := session.Open(c)
	s, err := access.Current(ctx)
	if err != nil {
		return nil, err
	}

	return session.Shared(s, access.Root, "", func() *Session { return &Session{session.Behind(s)} }), nil
}

// State returns the state of the client, for health checks. It does no I/O. Because it is computed
// from the clocks at each call, a session that can't be trusted any more is [Lost] even before a
// listener is called. Recipes can be used in any state but [Closed].
func (c *Client) State() State { return State(session.Open(c).State()) }

// Close ends the session and so deletes its ephemeral nodes. All locks are lost. Calls that wait
// return [ErrClosed] at once, and so do later calls.
//
// Close waits at most two seconds for the client's goroutines. It does not wait for a call of a
// state listener or an observer (which can be the caller of Close), so the last events can come
// after Close has returned. A program that must not lose them waits until its observer has seen
// the end of each hold. If a session can't be closed, Close returns an error and the nodes
// of that session stay until the servers expire it. Later calls of Close return the same.
func (c *Client) Close() error { return session.Open(c).Close() }

// Observe passes an event of your own recipe to the observer of [WithObserver], if there is one. It
// sets the Time. It does no I/O and does not block.
func (c *Client) Observe(e Event) {
	if c.observer == nil {
		return
	}

	event := e // otherwise e would be allocated even without an observer
	event.Time = time.Now()
	if event.Context == nil {
		event.Context = context.Background()
	}

	session.Open(c).Foreign.Post(c.observing, func() { c.observer.Observe(event) }, 0)
}

// String returns the servers and the client's identity without secrets, as in
// "zk1:2181,zk2:2181/app as digest:alice".
func (c *Client) String() string {
	access := session.Open(c)
	return strings.Join(access.Servers, ",") + access.Chroot + " as " + access.Identities()
}
