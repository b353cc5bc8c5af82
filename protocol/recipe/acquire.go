package recipe

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/conn"
	"github.com/zkrecipes/zkrecipes/internal/pace"
	"github.com/zkrecipes/zkrecipes/internal/session"
	"github.com/zkrecipes/zkrecipes/protocol"
)

// Validate reports what is wrong with the client, the path, an option, or the data for a node,
// before any I/O. Its error wraps [zk.ErrInvalidPath], [protocol.ErrTooLarge] or the option's
// error.
func (r *Recipe) Validate(data []byte) error {
	if r == nil {
		return errors.New("a zero value: make it with New")
	}
	if err := validate(r.access, r.path, data); err != nil {
		return err
	}
	return r.refused
}

// ValidateCall is [Recipe.Validate] for a call with this context, which must not be nil. Its error
// carries recipe and path.
func (r *Recipe) ValidateCall(ctx context.Context, data []byte) error {
	err := r.Validate(data)
	if err == nil && ctx == nil {
		err = session.ErrNilContext
	}
	return r.Wrap(err)
}

// Session returns the current session, bound to the view. It blocks until there is one. Its error
// is that of [Recipe.Validate] or of [protocol.Client.Session].
func (r *Recipe) Session(ctx context.Context) (*Session, error) {
	if err := r.Validate(nil); err != nil {
		return nil, err
	}
	return r.session(ctx)
}

// session returns the current session. If there is an observer, the session knows the recipe, which
// the events of its retries name then.
func (r *Recipe) session(ctx context.Context) (*Session, error) {
	core, err := r.access.Current(ctx)
	if err != nil {
		return nil, err
	}
	for {
		bound := r.bound.Load()
		if bound != nil && bound.bound.Session == core {
			return bound, nil
		}
		s, err := r.client.Session(ctx)
		if err != nil {
			return nil, err
		}
		next := shared(s, r.client, true)
		if r.access.View.Observed {
			next = bind(s, r.client, r.known(), true)
		}
		if core = next.bound.Session; r.bound.CompareAndSwap(bound, next) {
			return next, nil
		}
	}
}

// AcrossSessions is the frame of a recipe's verb: it calls attempt under the current session. If
// that session is lost meanwhile, it calls attempt under the next one, after a pause of the view's
// back-off. What attempt has created under the lost session goes with it, if it was ephemeral.
// attempt should use ctx.
//
// It blocks until attempt has an outcome, ctx ends or the client is closed. It returns attempt's
// error as it is, that of [Recipe.Validate], ctx's, or [protocol.ErrClosed]. For an error of
// [Again], it calls attempt once more.
func AcrossSessions[T any](ctx context.Context, r *Recipe, attempt func(*Session) (T, error)) (v T, err error) {
	if err := r.Validate(nil); err != nil {
		return v, err
	}
	defer session.Catch(&err)

	var pauses pace.Pauses
	for {
		s, err := r.session(ctx)
		if err != nil {
			return v, err
		}
		began := time.Now()
		v, err := attempt(s)
		again := errors.As(err, new(*againError)) || s.Err() != nil && !errors.Is(err, protocol.ErrClosed) && !errors.Is(err, protocol.ErrAuthRequired)
		if err == nil || !again || ctx.Err() != nil {
			return v, becauseOf(ctx, err)
		}

		// A session that has lasted was of use: what ends it is a failure of its own.
		if time.Since(began) > s.Timeout() {
			pauses.Reset()
		}
		wait, stopped := r.access.View.NextPause(ctx, r.access.Closing, &pauses)
		if stopped != nil {
			return v, fmt.Errorf("%w: %w", stopped, err)
		}
		if err := s.bound.Pause(ctx, r.access.Closing.Done(), wait, err); err != nil {
			return v, err
		}
	}
}

// becauseOf adds to the error of an attempt that ctx has ended, if it does not say so.
func becauseOf(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil && !errors.Is(err, ctx.Err()) {
		return fmt.Errorf("%w: %w", conn.ContextError(ctx), err)
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
		r.access.Spawn(func() { late.Release(late.session.bound.Life) })
		g, err = nil, conn.ContextError(ctx)
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
	if r == nil || r.access == nil {
		return since, false
	}
	h, held := r.access.HeldAt(r.path)
	return h.Since, held
}
