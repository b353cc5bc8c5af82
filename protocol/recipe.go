package protocol

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/cenkalti/backoff/v4"
)

// A Recipe is what every recipe starts from: a client's view, the recipe's name, and its path. It
// validates, gives out sessions that are bound to the view, names the recipe and the path in
// errors, and reports events. It is safe for concurrent use once [Configure] has returned.
//
// See docs/writing-a-recipe.md for a whole recipe.
type Recipe struct {
	client  *Client
	name    string
	path    string
	refused error // an option
}

// NewRecipe returns the recipe of this name at path. It does no I/O and cannot fail: the first call
// reports a nil client or a bad path.
func NewRecipe(c *Client, name, path string) *Recipe {
	return &Recipe{client: c, name: name, path: path}
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
func (r *Recipe) Wrap(err error) error { return wrap(r.name, r.path, err) }

// Validate reports what is wrong with the client, the path, an option, or the data for a node,
// before any I/O. Its error wraps [zk.ErrInvalidPath], [ErrTooLarge] or the option's error.
func (r *Recipe) Validate(data []byte) error {
	if err := validate(r.client, r.path, data); err != nil {
		return err
	}
	return r.refused
}

// Session returns the current session, bound to the view. It blocks until there is one. Its error
// is that of [Recipe.Validate] or of [Client.Session].
func (r *Recipe) Session(ctx context.Context) (*Session, error) {
	if err := r.Validate(nil); err != nil {
		return nil, err
	}
	return r.client.Session(ctx)
}

// Waited reports to the view's observer that a wait has ended which began at that time, with err.
// It is for verbs that acquire nothing: [Recipe.Acquire] reports by itself, and so do the grants
// when they end.
func (r *Recipe) Waited(began time.Time, err error) {
	if r.client != nil {
		r.client.observe(Event{Kind: EventAcquired, Recipe: r.name, Path: r.path, Duration: time.Since(began), Err: err})
	}
}

// Report reports to the view's observer what has happened to this many entries under s, which may
// be nil. It is for the events of queues. It does no I/O and does not block.
func (r *Recipe) Report(kind EventKind, s *Session, count int, err error) {
	if r.client == nil {
		return
	}
	e := Event{Kind: kind, Recipe: r.name, Path: r.path, Count: count, Err: err}
	if s != nil {
		e.Session = s.ID()
	}
	r.client.observe(e)
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
		s, err := r.client.Session(ctx)
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
		if err := r.client.pause(ctx, r.client.closing.Done(), pause.NextBackOff(), err); err != nil {
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
// stores in its node. A grant that comes when ctx has ended is given back. Acquire reports the end
// of the wait to the view's observer. It wraps its error.
func (r *Recipe) Acquire(ctx context.Context, data []byte, attempt func(*Session) (*Grant, error)) (*Grant, error) {
	if err := r.Validate(data); err != nil {
		return nil, r.Wrap(err)
	}

	began := time.Now()
	g, err := AcrossSessions(ctx, r, attempt)
	if err == nil && ctx.Err() != nil {
		late := g
		r.client.spawn(func() { late.Release(late.session.life) })
		g, err = nil, contextError(ctx)
	}

	r.acquired(began, g, err)
	return g, r.Wrap(err)
}

// acquired reports the end of a wait. It is not part of Acquire, whose frame waits with each
// contender.
//
//go:noinline
func (r *Recipe) acquired(began time.Time, g *Grant, err error) {
	e := Event{Kind: EventAcquired, Recipe: r.name, Path: r.path, Duration: time.Since(began), Err: err}
	if err == nil {
		e.Session, e.Token = g.session.ID(), g.token
	}
	r.client.observe(e)
}

// HeldSince reports whether the current session of the client holds something at the recipe's path,
// and since when. It does no I/O.
func (r *Recipe) HeldSince() (since time.Time, held bool) {
	if r.client == nil {
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
// is gone. The grant is lost if the name is that of another node, which only token tells apart.
// Nothing but remove deletes a node, and remove must not delete another one after a lost reply.
// Such a grant cannot be replaced.
func (r *Recipe) NewNamedGrant(ctx context.Context, s *Session, path string, token int64,
	remove func(context.Context) error) (*Grant, error) {
	return r.grant(ctx, s, path, token, true, remove)
}

func (r *Recipe) grant(ctx context.Context, s *Session, path string, token int64, named bool,
	remove func(context.Context) error) (*Grant, error) {
	s.engage()
	for {
		g, err := newGrant(r, s, s.Path(path), token, named, remove)
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
