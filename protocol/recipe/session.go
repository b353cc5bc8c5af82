package recipe

import (
	"context"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/session"
	"github.com/zkrecipes/zkrecipes/protocol"
)

// A Session is a user's session as a recipe uses it. It has the view's ACL, back-off, logger and
// observer. It also has the methods of [protocol.Session]. A Session is safe for concurrent use.
//
// Get, Children, Exists, Create, Set, Delete, Multi and Sync block until the server has answered.
// If the connection breaks, they try again at the pace of the back-off. They take paths without the
// chroot. They return the server's own error (such as [zk.ErrNoAuth]), ctx's error or
// [protocol.ErrTooLarge]. If the session ends, the error wraps [protocol.ErrLost] or
// [protocol.ErrClosed]. [Do] and [DoOnce] make other requests in the same way.
//
// A Session of [Recipe.Session] or [AcrossSessions] waits for a server until ctx ends. With a
// Session of [SessionOf] they return an error that wraps [zk.ErrNoServer] if no server answers for
// the session timeout. (The session can still be alive then.)
type Session struct {
	*protocol.Session
	bound session.Bound
	outer *Session // if this session is for work: the session of callers that wait
}

// SessionOf returns the current session of a client (as [protocol.Client.Session] does) for
// requests that belong to no recipe.
func SessionOf(ctx context.Context, c *protocol.Client) (*Session, error) {
	s, err := c.Session(ctx)
	if err != nil {
		return nil, err
	}
	return bind(s, c, nil, false), nil
}

// A binding is the key of the [Session] that bind returns.
type binding struct {
	kind    kind
	path    string
	patient bool
}

// bind returns the session that is bound to the view of a client. If there is an observer, it is
// also bound to r so that events of retries name the recipe (unless r is nil). It is the same
// value for as long as something refers to it.
func bind(s *protocol.Session, c *protocol.Client, r *Recipe, patient bool) *Session {
	core, view := session.Open(s), &session.Open(c).View
	key := binding{patient: patient}
	if !view.Observed {
		r = nil
	} else if r != nil {
		key.kind, key.path = r.kind.Value(), r.path
	}

	return session.Shared(core, view, key, func() *Session {
		bound := session.Bound{Session: core, View: view, Patient: patient}
		if view.Observed {
			bound.Retried = func(ctx context.Context, id int64, pause time.Duration, err error) {
				e := protocol.Event{Kind: protocol.EventRetried, Context: ctx, Session: id, Duration: pause, Err: err}
				r.name(&e)
				c.Observe(e)
			}
		}

		return &Session{Session: s, bound: bound}
	})
}

// ACL returns the view's ACL for a node that is created through s. The path has no chroot. The name
// of a sequential node has no number yet. If the user's ACL function fails, so does each request
// with the ACL.
func (s *Session) ACL(path string) []zk.ACL { return s.bound.View.ACL(path) }

// Servers returns the addresses in the client's connect string, in alphabetical order.
func (s *Session) Servers() []string { return slices.Sorted(slices.Values(s.bound.Servers)) }

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

// of returns s for the work whose context ctx is, or s itself if ctx is no context of work. The
// methods of values that belong to a session use it because they get no session.
func (s *Session) of(ctx context.Context) *Session {
	if w := session.WorkOf(ctx); w != nil && w != s.bound.Work {
		return s.in(w)
	}
	return s
}

// Background returns s for work without a caller, which lasts as long as s.
func (s *Session) Background() *Session { return s.in(s.bound.Nobody) }

// plain returns s for callers that wait.
func (s *Session) plain() *Session {
	if s.outer == nil {
		return s
	}
	return s.outer
}
