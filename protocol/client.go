package protocol

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/session"
)

// The doors to the kernel, see [session.Door].
type (
	clientDoor  = session.Door[session.Access]
	sessionDoor = session.Door[session.Session]
)

// A Client is a lasting connection to an ensemble. It opens a new [Session] whenever one has ended.
// Recipes are made from a client. It is safe for concurrent use.
type Client struct {
	clientDoor
	observer  Observer // nil if there is none
	observing *session.Callee
}

// With returns a client with other options on the same sessions. Closing either client closes both.
// With does no I/O. A bad option is returned by the first operation of the new client.
func (c *Client) With(opts ...Option) *Client {
	if c == nil || session.Open(c) == nil {
		return new(Client) // which Connect did not make either, as its first operation says
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

// Session returns the current session. It blocks until there is one, and while the servers may have
// expired it because they have not heard from it for the session timeout. If ctx ends first it returns
// ctx's error, with the error of the last attempt to connect. After [Client.Close] it returns
// [ErrClosed]. If the servers have refused a credential before there ever was a session, it returns
// that error.
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

// State returns the state of the client, for health checks. It does no I/O, and is computed from
// the clocks when it is called: a session that can no longer be trusted is [Lost], though no
// listener has been told yet. Recipes can be used in any state but [Closed]. State is safe for
// concurrent use.
func (c *Client) State() State { return State(session.Open(c).State()) }

// Close ends the session, which deletes its ephemeral nodes, and waits for the client's goroutines.
// All that is held is lost. Calls that wait return [ErrClosed] at once, and so do later ones.
//
// Close blocks for two seconds at most, whatever the network does. It returns an error if a session
// could not be closed. The nodes of that session stay until the servers expire it. Close does not
// wait for a call of a state listener or an observer that is under way. It waits for the logger to
// take the last messages. It may be called again, from anywhere, and returns the same.
func (c *Client) Close() error { return session.Open(c).Close() }

// Observe passes an event to the observer of [WithObserver], if there is one, for recipes of your
// own. It sets the Time. It does no I/O and does not block.
func (c *Client) Observe(e Event) {
	if c.observer == nil {
		return
	}
	event := e // e itself would be allocated without an observer, too
	event.Time = time.Now()
	if event.Context == nil {
		event.Context = context.Background()
	}
	session.Open(c).Foreign.Post(c.observing, func() { c.observer.Observe(event) }, 0)
}

// String returns the servers and as whom the client acts, without secrets, as in
// "zk1:2181,zk2:2181/app as digest:alice".
func (c *Client) String() string {
	access := session.Open(c)
	return strings.Join(access.Servers, ",") + access.Chroot + " as " + access.Identities()
}
