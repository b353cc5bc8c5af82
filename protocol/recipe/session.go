package recipe

import (
	"context"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/session"
	"github.com/zkrecipes/zkrecipes/protocol"
)

// A Session is a session of users as a recipe uses it: with the view's ACL, back-off, logger and
// observer. It also has the methods of [protocol.Session]. A Session is safe for concurrent use.
//
// Get, Children, Exists, Create, Set, Delete, Multi and Sync block until the server has answered.
// If the connection breaks they try again, paced by the back-off. They take paths without the
// chroot. They return the server's own error, such as [zk.ErrNoAuth], ctx's if that ends first, one
// that wraps [protocol.ErrLost] or [protocol.ErrClosed] if the session ends, or
// [protocol.ErrTooLarge]. A Session of [Recipe.Session] or [AcrossSessions] waits for a server until
// ctx ends. With one of [SessionOf] they return an error that wraps [zk.ErrNoServer] if none can be
// reached for the session timeout. The session may be alive all the same. [Do] and [DoOnce] are for
// other requests.
type Session struct {
	*protocol.Session
	bound session.Bound
	outer *Session // the one for callers that wait, if this is for work
}

// SessionOf returns the current session of a client, as [protocol.Client.Session] does, for requests
// that belong to no recipe.
func SessionOf(ctx context.Context, c *protocol.Client) (*Session, error) {
	s, err := c.Session(ctx)
	if err != nil {
		return nil, err
	}
	return shared(s, c, false), nil
}

// bind returns a session that is bound to the view of a client, and to the recipe that its events
// name, if r is not nil.
func bind(s *protocol.Session, c *protocol.Client, r *Recipe, patient bool) *Session {
	bound := &Session{Session: s, bound: session.Bound{Session: session.Open(s), View: &session.Open(c).View, Patient: patient}}
	if bound.bound.View.Observed {
		bound.bound.Retried = func(ctx context.Context, id int64, pause time.Duration, err error) {
			e := protocol.Event{Kind: protocol.EventRetried, Context: ctx, Session: id, Duration: pause, Err: err}
			r.name(&e)
			c.Observe(e)
		}
	}
	return bound
}

// shared returns the session that is bound to the view of a client and to no recipe. It is the same
// value as long as somebody refers to it.
func shared(s *protocol.Session, c *protocol.Client, patient bool) *Session {
	create := func() *Session { return bind(s, c, nil, patient) }
	return session.Shared(session.Open(s), &session.Open(c).View, patient, create)
}

// ACL returns what a node gets that is created through s: the ACL of the view for this path, which
// has no chroot. The name of a sequential node ends before its number.
func (s *Session) ACL(path string) []zk.ACL { return s.bound.View.ACL(path) }

// NodeData returns the data for a contender's node: given, or the view's owner data if given is
// nil. It is for recipes whose nodes are not created by package line.
func (s *Session) NodeData(given []byte) []byte {
	if given == nil {
		return s.bound.View.OwnerData
	}
	return given
}

// in returns s for w.
func (s *Session) in(w *session.Work) *Session {
	return &Session{Session: s.Session, bound: s.bound.In(w), outer: s.plain()}
}

// of returns s for the work whose context ctx is, if it is one. It is for the methods of values that
// belong to a session, and are not given one.
func (s *Session) of(ctx context.Context) *Session {
	if w := session.WorkOf(ctx); w != nil && w != s.bound.Work {
		return s.in(w)
	}
	return s
}

// Background returns s for work that nobody waits for, and that lasts as long as s.
func (s *Session) Background() *Session { return s.in(&session.Nobody) }

// plain returns s for callers that wait.
func (s *Session) plain() *Session {
	if s.outer == nil {
		return s
	}
	return s.outer
}

// detached returns a context for w, with the values of another one.
func (s *Session) detached(values context.Context, w *session.Work) context.Context {
	return w.Context(s.bound.Life, values)
}
