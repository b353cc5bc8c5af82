package recipe

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"
	"unique"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/session"
	"github.com/zkrecipes/zkrecipes/protocol"
)

// A Recipe is the start of every recipe: a client's view, the recipe's name, and its path. It
// validates and gives out sessions that are bound to the view. It puts the recipe and the path into
// errors and reports events. It is safe for concurrent use once [Configure] has returned.
//
// See docs/writing-a-recipe.md for a whole recipe.
type Recipe struct {
	client  *protocol.Client
	access  *session.Access // nil without a client
	kind    unique.Handle[kind]
	path    string
	refused error   // the error of an option
	whole   *Recipe // the recipe that this is a part of, or nil

	bound atomic.Pointer[Session] // the latest session; with an observer it names the recipe
}

// A kind is the name of a recipe in errors and events.
type kind struct{ name, mode string }

// New returns the recipe of this name at path. It does no I/O and can't fail: the first call
// reports a nil client or a bad path.
func New(c *protocol.Client, name, path string) *Recipe {
	r := &Recipe{client: c, kind: unique.Make(kind{name: name}), path: path}
	if c != nil {
		r.access = session.Open(c)
	}
	return r
}

// Mode returns the recipe for one of several ways in which it is used, such as "read" and "write".
// Its events and the events of its grants have this Mode. Call it after [Configure].
func (r *Recipe) Mode(mode string) *Recipe {
	k := unique.Make(kind{r.kind.Value().name, mode})
	return &Recipe{client: r.client, access: r.access, kind: k, path: r.path, refused: r.refused, whole: r.whole}
}

// Part returns a recipe for nodes at another path that r uses inside. Its users need not know about
// them: waits and holds there are not reported, and errors and retries have the path of r.
func (r *Recipe) Part(path string) *Recipe {
	return &Recipe{client: r.client, access: r.access, kind: r.kind, path: path, refused: r.refused, whole: r}
}

// values returns a context that never ends. If there is an observer that can see them, it has the
// values of ctx.
func (r *Recipe) values(ctx context.Context) context.Context {
	if ctx == nil || !r.access.View.Observed || r.whole != nil {
		return context.Background()
	}
	return context.WithoutCancel(ctx)
}

// known returns the recipe that users know: r, or the recipe that it is a part of.
func (r *Recipe) known() *Recipe {
	for r.whole != nil {
		r = r.whole
	}
	return r
}

// Configure applies options to v, which is built on r. The first call reports the options that
// fail. Nil options are ignored.
func Configure[T any, O ~func(*T) error](r *Recipe, v *T, options []O) {
	for _, option := range options {
		if option != nil {
			r.Reject(option(v))
		}
	}
}

// Reject makes every call fail with err, before any I/O. A nil err changes nothing.
func (r *Recipe) Reject(err error) { r.refused = errors.Join(r.refused, err) }

// Path returns the recipe's path, without the chroot.
func (r *Recipe) Path() string { return r.path }

// Logger returns the view's logger, for failures that no call returns. It is never nil.
func (r *Recipe) Logger() *slog.Logger { return r.access.View.Log }

// Wrap adds the recipe and the path to err, in the form that all recipes use: "lock: /locks/a: …".
// A nil err stays nil, and an error that has both already stays as it is.
func (r *Recipe) Wrap(err error) error {
	if r == nil {
		return err
	}
	r = r.known()
	return wrap(r.kind.Value().name, r.path, err)
}

// session returns the current session. With an observer it is also bound to the recipe so that
// events of retries name the recipe.
func (r *Recipe) session(ctx context.Context) (*Session, error) {
	s, err := r.client.Session(ctx)
	if err != nil {
		return nil, err
	}
	// Usually the session is the same as in the call before.
	if bound := r.bound.Load(); bound != nil && bound.Session == s {
		return bound, nil
	}

	next := bind(s, r.client, r.known(), true)
	r.bound.Store(next)
	return next, nil
}

// Waiting reports to the view's observer that a wait begins. The caller must report its end with
// [Recipe.Waited]. Both are for verbs that acquire nothing: [Recipe.Acquire] reports by itself, and
// grants report their end.
func (r *Recipe) Waiting(ctx context.Context) {
	r.Report(protocol.Event{Kind: protocol.EventWaiting, Context: ctx})
}

// Waited reports to the view's observer that a wait which began at that time has ended with err. s
// is the session in which it ended, or nil. token is the token of the grant, or 0.
func (r *Recipe) Waited(ctx context.Context, began time.Time, s *Session, token int64, err error) {
	e := protocol.Event{Kind: protocol.EventAcquired, Context: ctx, Token: token, Duration: time.Since(began), Err: err}
	if s != nil {
		e.Session = s.ID()
	}
	r.Report(e)
}

// Report reports an event to the view's observer. It sets the Time, the Recipe, the Mode and the
// Path. It does no I/O and does not block.
func (r *Recipe) Report(e protocol.Event) {
	if r == nil || r.whole != nil || r.access == nil {
		return
	}
	r.name(&e)
	r.client.Observe(e)
}

// name makes an event name the recipe, if r is not nil.
func (r *Recipe) name(e *protocol.Event) {
	if r != nil {
		k := r.kind.Value()
		e.Recipe, e.Mode, e.Path = k.name, k.mode, r.path
	}
}

// ACL returns the ACL for a node of the recipe, as [Session.ACL] does.
func (r *Recipe) ACL(path string) []zk.ACL { return r.access.View.ACL(path) }
