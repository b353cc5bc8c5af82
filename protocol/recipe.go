package protocol

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"
	"unique"

	"github.com/cenkalti/backoff/v4"
)

// A Recipe is what every recipe starts from: a client's view, the recipe's name, and its path. It
// validates, gives out sessions that are bound to the view, names the recipe and the path in
// errors, and reports events. It is safe for concurrent use once [Configure] has returned.
//
// See docs/writing-a-recipe.md for a whole recipe.
type Recipe struct {
	client  *Client
	kind    unique.Handle[kind]
	path    string
	refused error   // an option
	whole   *Recipe // not nil if this is a part of that one

	bound atomic.Pointer[Session] // the latest session, bound to the recipe; nil without an observer
}

// A kind is what a recipe is called in errors and events.
type kind struct{ name, mode string }

// NewRecipe returns the recipe of this name at path. It does no I/O and cannot fail: the first call
// reports a nil client or a bad path.
func NewRecipe(c *Client, name, path string) *Recipe {
	return &Recipe{client: c, kind: unique.Make(kind{name: name}), path: path}
}

// Mode returns the recipe for one of several ways in which it is used, such as "read" and "write".
// Its events, and those of the grants that are acquired through it, have that as their Mode. Call
// it after [Configure].
func (r *Recipe) Mode(mode string) *Recipe {
	k := unique.Make(kind{r.kind.Value().name, mode})
	return &Recipe{client: r.client, kind: k, path: r.path, refused: r.refused, whole: r.whole}
}

// Part returns a recipe for nodes at another path that r uses inside, and of which its users need
// not know. Their waits and holds are not reported. Errors and retries have the path of r.
func (r *Recipe) Part(path string) *Recipe {
	return &Recipe{client: r.client, kind: r.kind, path: path, refused: r.refused, whole: r}
}

// values returns a context that never ends, with the values of the caller's if there is an observer
// to see them.
func (r *Recipe) values(ctx context.Context) context.Context {
	if ctx == nil || !r.client.observed() || r.whole != nil {
		return context.Background()
	}
	return context.WithoutCancel(Caller(ctx))
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
func (r *Recipe) Logger() *slog.Logger { return r.client.log }

// Wrap adds the recipe and the path to err, in the one form that all recipes use: "lock: /locks/a:
// …". A nil err stays nil, and an error that has both already stays as it is.
func (r *Recipe) Wrap(err error) error {
	if r == nil {
		return err
	}
	r = r.known()
	return wrap(r.kind.Value().name, r.path, err)
}

// Validate reports what is wrong with the client, the path, an option, or the data for a node,
// before any I/O. Its error wraps [zk.ErrInvalidPath], [ErrTooLarge] or the option's error.
func (r *Recipe) Validate(data []byte) error {
	if r == nil {
		return errors.New("a zero value: make it with New")
	}
	if err := validate(r.client, r.path, data); err != nil {
		return err
	}
	return r.refused
}

// ValidateCall is [Recipe.Validate] for a call with this context, which must not be nil. Its error
// carries recipe and path.
func (r *Recipe) ValidateCall(ctx context.Context, data []byte) error {
	err := r.Validate(data)
	if err == nil && ctx == nil {
		err = errNilContext
	}
	return r.Wrap(err)
}

// Session returns the current session, bound to the view. It blocks until there is one. Its error
// is that of [Recipe.Validate] or of [Client.Session].
func (r *Recipe) Session(ctx context.Context) (*Session, error) {
	if err := r.Validate(nil); err != nil {
		return nil, err
	}
	return r.session(ctx)
}

// session returns the current session. If there is an observer, the session knows the recipe, which
// the events of its retries name then.
func (r *Recipe) session(ctx context.Context) (*Session, error) {
	s, err := r.client.Session(ctx)
	if err != nil || !r.client.observed() {
		return s, err
	}
	for {
		bound := r.bound.Load()
		if bound != nil && bound.session == s.session {
			return bound, nil
		}
		if next := (&Session{s.session, s.client, r.known()}); r.bound.CompareAndSwap(bound, next) {
			return next, nil
		}
	}
}

// Waiting reports to the view's observer that a wait begins. The caller reports its end with
// [Recipe.Waited], whatever that is. Both are for verbs that acquire nothing: [Recipe.Acquire]
// reports by itself, and so do the grants when they end.
func (r *Recipe) Waiting(ctx context.Context) {
	r.Report(Event{Kind: EventWaiting, Context: ctx})
}

// Waited reports to the view's observer that a wait has ended which began at that time, with err.
// If s is not nil, that is where it ended. If token is not 0, it is that of what is held now.
func (r *Recipe) Waited(ctx context.Context, began time.Time, s *Session, token int64, err error) {
	e := Event{Kind: EventAcquired, Context: ctx, Token: token, Duration: time.Since(began), Err: err}
	if s != nil {
		e.Session = s.ID()
	}
	r.Report(e)
}

// Report reports an event to the view's observer. It sets its Time, and what says which recipe it
// is. It does no I/O and does not block.
func (r *Recipe) Report(e Event) {
	if r == nil || r.whole != nil || r.client == nil || r.client.sessions == nil {
		return
	}
	r.name(&e)
	r.client.observe(e)
}

// name sets what says of an event which recipe it is about. A nil recipe is none.
func (r *Recipe) name(e *Event) {
	if r != nil {
		k := r.kind.Value()
		e.Recipe, e.Mode, e.Path = k.name, k.mode, r.path
	}
}

// AcrossSessions is the frame of a recipe's verb: it calls attempt under the current session. If
// that session is lost meanwhile, it calls attempt under the next one, after a pause of the view's
// back-off. What attempt has created under the lost session goes with it, if it was ephemeral.
// attempt should use ctx.
//
// It blocks until attempt has an outcome, ctx ends or the client is closed. It returns attempt's
// error as it is, that of [Recipe.Validate], ctx's, or [ErrClosed]. For an error of [Again], it
// calls attempt once more.
func AcrossSessions[T any](ctx context.Context, r *Recipe, attempt func(*Session) (T, error)) (v T, err error) {
	if err := r.Validate(nil); err != nil {
		return v, err
	}

	var pause backoff.BackOff
	for {
		s, err := r.session(ctx)
		if err != nil {
			return v, err
		}
		began := time.Now()
		v, err := attempt(s)
		again := errors.As(err, new(*againError)) || s.Err() != nil && !errors.Is(err, ErrClosed) && !errors.Is(err, ErrAuthRequired)
		if err == nil || !again || ctx.Err() != nil {
			return v, becauseOf(ctx, err)
		}

		// A session that has lasted was of use: what ends it is a failure of its own.
		if pause == nil || time.Since(began) > s.Timeout() {
			pause = r.client.newBackOff()
		}
		if err := r.client.pause(ctx, s, r.client.closing.Done(), pause.NextBackOff(), err); err != nil {
			return v, err
		}
	}
}

// becauseOf adds to the error of an attempt that ctx has ended, if it does not say so.
func becauseOf(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil && !errors.Is(err, ctx.Err()) {
		return fmt.Errorf("%w: %w", contextError(ctx), err)
	}
	return err
}

// Again marks the error of an attempt that [AcrossSessions] is to repeat, though its session lasts.
func Again(err error) error { return &againError{err} }

type againError struct{ error }

func (a *againError) Unwrap() error { return a.error }

// Acquire is [AcrossSessions] for attempts that acquire something. It validates data, which attempt
// stores in its node. A grant that comes when ctx has ended is given back. Acquire reports the
// beginning and the end of the wait to the view's observer. It wraps its error.
func (r *Recipe) Acquire(ctx context.Context, data []byte, attempt func(*Session) (*Grant, error)) (*Grant, error) {
	if err := r.ValidateCall(ctx, data); err != nil {
		return nil, err
	}

	began := time.Now()
	r.waiting(ctx)
	g, err := AcrossSessions(ctx, r, attempt)
	if err == nil && ctx.Err() != nil {
		late := g
		r.client.spawn(func() { late.Release(late.session.life) })
		g, err = nil, contextError(ctx)
	}

	err = r.Wrap(err)
	r.acquired(ctx, began, g, err)
	return g, err
}

// waiting and acquired report a wait. They are not part of Acquire, whose frame waits with each
// contender.
//
//go:noinline
func (r *Recipe) waiting(ctx context.Context) { r.Waiting(ctx) }

//go:noinline
func (r *Recipe) acquired(ctx context.Context, began time.Time, g *Grant, err error) {
	if err != nil {
		r.Waited(ctx, began, nil, 0, err)
	} else {
		r.Waited(ctx, began, g.session, g.token, nil)
	}
}

// HeldSince reports whether the current session of the client holds something at the recipe's path,
// and since when. It does no I/O.
func (r *Recipe) HeldSince() (since time.Time, held bool) {
	if r == nil || r.client == nil || r.client.sessions == nil {
		return since, false
	}
	r.client.mu.Lock()
	s := r.client.current
	r.client.mu.Unlock()
	if s == nil {
		return since, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for g := range s.grants {
		if g.recipe.path == r.path {
			return g.since, true
		}
	}
	return since, false
}

// NewGrant makes the node at path, an ephemeral one of s that was created by the transaction with
// the number token, something that is held. The path has no chroot, and token is the Czxid in the
// node's Stat. [Grant.Release] calls remove, which should delete the node; its context is that of
// [Detach].
//
// If NewGrant fails, the node stays: the caller deletes it, with [Own.Withdraw] for example.
//
// NewGrant blocks only if s has to be confirmed first, because nothing was heard from the
// ensemble's leader lately. It returns ctx's error or one that wraps [ErrLost] or [ErrClosed].
func (r *Recipe) NewGrant(ctx context.Context, s *Session, path string, token int64,
	remove func(context.Context) error) (*Grant, error) {
	return r.grant(ctx, s, path, token, false, remove)
}

// NewNamedGrant is [Recipe.NewGrant] for a node whose name another contender may use once the node
// is gone. The grant is lost if the name is that of another node, which only token tells apart. It
// is also lost if s may not read the node's Stat any more. Nothing but remove deletes a node, and
// remove must not delete another one after a lost reply. Such a grant cannot be replaced.
func (r *Recipe) NewNamedGrant(ctx context.Context, s *Session, path string, token int64,
	remove func(context.Context) error) (*Grant, error) {
	return r.grant(ctx, s, path, token, true, remove)
}

func (r *Recipe) grant(ctx context.Context, s *Session, path string, token int64, named bool,
	remove func(context.Context) error) (*Grant, error) {
	s.engage()
	for {
		g, err := newGrant(ctx, r, s, s.Path(path), token, named, remove)
		if errors.Is(err, errStale) {
			if _, err = s.Confirm(ctx); err == nil {
				continue
			}
		}
		if err != nil {
			s.disengage()
		}
		return g, err
	}
}
