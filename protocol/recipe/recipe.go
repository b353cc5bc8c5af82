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

// A Recipe is what every recipe starts from: a client's view, the recipe's name, and its path. It
// validates, gives out sessions that are bound to the view, names the recipe and the path in
// errors, and reports events. It is safe for concurrent use once [Configure] has returned.
//
// See docs/writing-a-recipe.md for a whole recipe.
type Recipe struct {
	client  *protocol.Client
	access  *session.Access // nil without a client
	kind    unique.Handle[kind]
	path    string
	refused error   // an option
	whole   *Recipe // not nil if this is a part of that one

	bound atomic.Pointer[Session] // the latest session, bound to the view, and with an observer to the recipe
}

// A kind is what a recipe is called in errors and events.
type kind struct{ name, mode string }

// New returns the recipe of this name at path. It does no I/O and cannot fail: the first call
// reports a nil client or a bad path.
func New(c *protocol.Client, name, path string) *Recipe {
	r := &Recipe{client: c, kind: unique.Make(kind{name: name}), path: path}
	if c != nil {
		r.access = session.Open(c)
	}
	return r
}

// Mode returns the recipe for one of several ways in which it is used, such as "read" and "write".
// Its events, and those of the grants that are acquired through it, have that as their Mode. Call
// it after [Configure].
func (r *Recipe) Mode(mode string) *Recipe {
	k := unique.Make(kind{r.kind.Value().name, mode})
	return &Recipe{client: r.client, access: r.access, kind: k, path: r.path, refused: r.refused, whole: r.whole}
}

// Part returns a recipe for nodes at another path that r uses inside, and of which its users need
// not know. Their waits and holds are not reported. Errors and retries have the path of r.
func (r *Recipe) Part(path string) *Recipe {
	return &Recipe{client: r.client, access: r.access, kind: r.kind, path: path, refused: r.refused, whole: r}
}

// values returns a context that never ends, with the values of the caller's if there is an observer
// to see them.
func (r *Recipe) values(ctx context.Context) context.Context {
	if ctx == nil || !r.access.View.Observed || r.whole != nil {
		return context.Background()
	}
	return context.WithoutCancel(ctx)
}

// known returns the recipe that users know: r, or what it is a part of.
func (r *Recipe) known() *Recipe {
	for r.whole != nil {
		r = r.whole
	}
	return r
}

// Configure applies options to v, which is built on r. The first call reports those that fail. Nil
// options are ignored.
func Configure[T any, O ~func(*T) error](r *Recipe, v *T, options []O) {
	for _, option := range options {
		if option != nil {
			r.Reject(option(v))
		}
	}
}

// Reject makes every call fail with err, before any I/O. A nil err changes nothing.
func (r *Recipe) Reject(err error) { r.refused = errors.Join(r.refused, err) }

// Refused returns what [Recipe.Reject] was given, or nil.
func (r *Recipe) Refused() error { return r.refused }

// Path returns the recipe's path, without the chroot.
func (r *Recipe) Path() string { return r.path }

// Logger returns the view's logger, for what no caller is told. It is never nil.
func (r *Recipe) Logger() *slog.Logger { return r.access.View.Log }

// Wrap adds the recipe and the path to err, in the one form that all recipes use: "lock: /locks/a:
// …". A nil err stays nil, and an error that has both already stays as it is.
func (r *Recipe) Wrap(err error) error {
	if r == nil {
		return err
	}
	r = r.known()
	return wrap(r.kind.Value().name, r.path, err)
}

// Waiting reports to the view's observer that a wait begins. The caller reports its end with
// [Recipe.Waited], whatever that is. Both are for verbs that acquire nothing: [Recipe.Acquire]
// reports by itself, and so do the grants when they end.
func (r *Recipe) Waiting(ctx context.Context) {
	r.Report(protocol.Event{Kind: protocol.EventWaiting, Context: ctx})
}

// Waited reports to the view's observer that a wait has ended which began at that time, with err.
// If s is not nil, that is where it ended. If token is not 0, it is that of what is held now.
func (r *Recipe) Waited(ctx context.Context, began time.Time, s *Session, token int64, err error) {
	e := protocol.Event{Kind: protocol.EventAcquired, Context: ctx, Token: token, Duration: time.Since(began), Err: err}
	if s != nil {
		e.Session = s.ID()
	}
	r.Report(e)
}

// Report reports an event to the view's observer. It sets its Time, and what says which recipe it
// is. It does no I/O and does not block.
func (r *Recipe) Report(e protocol.Event) {
	if r == nil || r.whole != nil || r.access == nil {
		return
	}
	r.name(&e)
	r.client.Observe(e)
}

// name sets what says of an event which recipe it is about. A nil recipe is none.
func (r *Recipe) name(e *protocol.Event) {
	if r != nil {
		k := r.kind.Value()
		e.Recipe, e.Mode, e.Path = k.name, k.mode, r.path
	}
}

// ACL returns what a node of the recipe gets, as [Session.ACL] does.
func (r *Recipe) ACL(path string) []zk.ACL { return r.access.View.ACL(path) }
