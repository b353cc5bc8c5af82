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

// Validate reports whether something is wrong with the client, the path, an option or the data for
// a node. It does no I/O. Its error wraps [zk.ErrInvalidPath], [protocol.ErrTooLarge] or the
// option's error.
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
// has the recipe and the path.
func (r *Recipe) ValidateCall(ctx context.Context, data []byte) error {
	err := r.Validate(data)
	if err == nil && ctx == nil {
		err = session.ErrNilContext
	}
	return r.Wrap(err)
}

// Session returns the current session, bound to the view. It blocks until there is a session. It
// returns the errors of [Recipe.Validate] and [protocol.Client.Session].
func (r *Recipe) Session(ctx context.Context) (*Session, error) {
	if err := r.Validate(nil); err != nil {
		return nil, err
	}
	return r.session(ctx)
}

// AcrossSessions is the frame of a recipe's verb. It calls attempt under the current session. If
// that session is lost meanwhile, AcrossSessions makes a pause of the view's back-off and calls
// attempt under the next session. (Ephemeral nodes that attempt created go with their session.) It
// also calls attempt again after an error of [Again]. attempt should use ctx.
//
// AcrossSessions blocks until attempt has an outcome, ctx ends or the client is closed. It returns
// the error of attempt as it is. Otherwise it returns ctx's error, [protocol.ErrClosed] or the
// error of [Recipe.Validate]. If the session was lost, it calls attempt again even after
// [protocol.ErrUncertain]. So an attempt that must not be made twice returns that error in its
// result instead.
func AcrossSessions[T any](ctx context.Context, r *Recipe, attempt func(*Session) (T, error)) (v T, err error) {
	if err := r.Validate(nil); err != nil {
		return v, err
	}

	var pauses pace.Pauses
	for {
		s, err := r.session(ctx)
		if err != nil {
			return v, err
		}

		began := time.Now()
		v, err := attempt(s)
		again := errors.As(err, new(*againError)) ||
			s.Err() != nil && !errors.Is(err, protocol.ErrClosed) && !errors.Is(err, protocol.ErrAuthRequired)
		if err == nil || !again || ctx.Err() != nil {
			return v, becauseOf(ctx, err)
		}

		// A session that has lasted was of use, so the pauses start anew.
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

// becauseOf adds ctx's error to the error of an attempt that ctx has ended.
func becauseOf(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil && !errors.Is(err, ctx.Err()) {
		return fmt.Errorf("%w: %w", conn.ContextError(ctx), err)
	}
	return err
}

// Again marks an error after which [AcrossSessions] calls attempt again even if the session lasts.
func Again(err error) error { return &againError{err} }

type againError struct{ error }

func (a *againError) Unwrap() error { return a.error }

// Acquire is [AcrossSessions] for attempts that acquire something. It validates data, which attempt
// stores in its node. It gives back a grant that comes after ctx has ended. It reports the
// beginning and the end of the wait to the view's observer and wraps its error.
func (r *Recipe) Acquire(ctx context.Context, data []byte, attempt func(*Session) (*Grant, error)) (*Grant, error) {
	if err := r.ValidateCall(ctx, data); err != nil {
		return nil, err
	}

	began := time.Now()
	r.waiting(ctx)
	g, err := AcrossSessions(ctx, r, attempt)
	// The caller has left, so it would never give the grant back.
	if err == nil && ctx.Err() != nil {
		late := g
		r.access.Spawn(func() { late.Release(late.session.bound.Life) })
		g, err = nil, conn.ContextError(ctx)
	}

	err = r.Wrap(err)
	r.acquired(ctx, began, g, err)
	return g, err
}

// waiting and acquired report a wait. They must not be inlined into Acquire, whose frame stays on
// the stack of each contender while it waits.
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
