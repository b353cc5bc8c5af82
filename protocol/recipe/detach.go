package recipe

import (
	"context"
	"errors"

	"github.com/zkrecipes/zkrecipes/internal/conn"
	"github.com/zkrecipes/zkrecipes/internal/pace"
	"github.com/zkrecipes/zkrecipes/internal/session"
	"github.com/zkrecipes/zkrecipes/protocol"
)

// Detach runs fn to completion even if the caller leaves. It is for work at the servers that must
// not be left half-way. fn gets a context that lasts as long as s (not as long as ctx) and has the
// values of ctx, and s as a [Session] for work that goes on. It must use both.
//
// Detach blocks until fn returns or ctx ends. It also returns if fn meets an error that only others
// can remove or that outlasts the view's back-off. In the latter cases Detach returns ctx's error
// or that error. Then fn goes on in the background. If it succeeds, its result goes to undo (unless
// undo is nil). Before fn begins something, it should ask [Session.Abandoned] whether the caller
// has left.
//
// In work of another Detach (with the context of that work) it simply calls fn. After
// [protocol.Client.Close] it returns [protocol.ErrClosed]. It is safe for concurrent use.
func Detach[T any](ctx context.Context, s *Session, fn func(context.Context, *Session) (T, error), undo func(T)) (T, error) {
	if ctx == nil {
		var zero T
		return zero, session.ErrNilContext
	}
	// Work inside work needs no goroutine of its own.
	if s.bound.Work != nil && s.bound.Work.Caller != nil && s.bound.Conn.Lasts(ctx) {
		return fn(ctx, s)
	}
	return runDetached(ctx, s, fn, undo)
}

// runDetached is not part of [Detach], so its frame is not on the stack of the work.
func runDetached[T any](ctx context.Context, s *Session, fn func(context.Context, *Session) (T, error), undo func(T)) (T, error) {
	type result struct {
		v   T
		err error
	}

	var zero T
	w := session.NewWork(s.bound.Life, ctx, nil)
	// The channel has no room: the result goes either to the caller or to undo.
	answer, left := make(chan result), make(chan struct{})
	defer close(left)
	started := s.bound.SpawnWork(func() {
		r := result{err: errWorkEnded} // unless fn returns
		defer func() {
			select {
			case answer <- r:
			case <-left:
				if r.err == nil && undo != nil {
					undo(r.v)
				}
			}
		}()
		r.v, r.err = fn(w, s.in(w))
	})
	if !started {
		return zero, protocol.ErrClosed
	} else if ctx.Err() != nil { // also if the work has ended already
		return zero, w.ContextError(ctx)
	}

	select {
	case r := <-answer:
		return r.v, r.err
	case <-w.GaveUp:
		return zero, w.Failure
	case <-ctx.Done():
		return zero, w.ContextError(ctx)
	}
}

var errWorkEnded = pace.Foreign("work", nil)

// Ended returns why ctx has ended, or nil if it has not ended. The error has the text of ctx's
// cause.
func Ended(ctx context.Context) error {
	if ctx.Err() != nil {
		return conn.ContextError(ctx)
	}
	return nil
}

// Cancelled is [Ended] for a verb that goes on until ctx ends: if ctx was cancelled, it returns
// nil.
func Cancelled(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return nil
	}
	return Ended(ctx)
}

// Abandoned returns an error once s has ended or the caller of [Detach] (whose work s is for) has
// left. It does not block. In the op of a [DoOnce], it prevents an attempt that the caller doesn't
// want any more.
func (s *Session) Abandoned() error {
	if s.bound.Work == nil {
		return nil
	}
	if err := s.bound.Work.Unwanted(); err != nil {
		return err
	}
	return context.Cause(s.bound.Life)
}

// LetGo makes the caller of [Detach] (whose work s is for) return err now. The work goes on. It is
// for errors that only others can remove, such as a missing permission. On another session it does
// nothing. It does not block.
func (s *Session) LetGo(err error) { s.bound.Work.GiveUp(err) }
