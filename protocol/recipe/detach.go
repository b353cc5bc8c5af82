package recipe

import (
	"context"

	"github.com/zkrecipes/zkrecipes/internal/conn"
	"github.com/zkrecipes/zkrecipes/internal/pace"
	"github.com/zkrecipes/zkrecipes/internal/session"
	"github.com/zkrecipes/zkrecipes/protocol"
)

// Detach runs fn, which changes something at the servers and must not be left half-way, to its end
// even if the caller stops waiting. fn gets a context that lasts as long as s does, not as long as
// ctx, and has the values of ctx; and s as a [Session] for work that goes on. It must use both.
//
// Detach blocks until fn returns or ctx ends, or until fn meets an error that only others can mend,
// or one that takes longer to go away than the view's back-off allows. In the latter cases Detach
// returns that error, or ctx's. fn then goes on in the background, and if it succeeds its result
// goes to undo, unless that is nil. Before it begins something, fn asks [Session.Abandoned] whether
// the caller still waits.
//
// In work of another Detach, under the very ctx of that work, it simply calls fn. After
// [protocol.Client.Close] it returns [protocol.ErrClosed]. It is safe for concurrent use.
func Detach[T any](ctx context.Context, s *Session, fn func(context.Context, *Session) (T, error), undo func(T)) (T, error) {
	if ctx == nil {
		var zero T
		return zero, session.ErrNilContext
	}
	if s.bound.Work != nil && s.bound.Work.Caller != nil && s.bound.Conn.Lasts(ctx) {
		return fn(ctx, s)
	}
	return runDetached(ctx, s, fn, undo)
}

// runDetached is the part of [Detach] that is not on the stack of its work.
func runDetached[T any](ctx context.Context, s *Session, fn func(context.Context, *Session) (T, error), undo func(T)) (T, error) {
	type result struct {
		v   T
		err error
	}
	var zero T
	w := session.NewWork(ctx, nil)
	answer, left := make(chan result), make(chan struct{})
	defer close(left)
	started := s.bound.Spawn(func() {
		r := result{err: pace.Foreign("work", nil)}
		defer func() {
			select {
			case answer <- r:
			case <-left:
				if r.err == nil && undo != nil {
					undo(r.v)
				}
			}
		}()
		defer session.Catch(&r.err)
		r.v, r.err = fn(s.detached(ctx, w), s.in(w))
	})
	if !started {
		return zero, protocol.ErrClosed
	}

	select {
	case r := <-answer:
		return r.v, r.err
	case <-w.GaveUp:
		return zero, w.Err
	case <-ctx.Done():
		return zero, w.ContextError(ctx)
	}
}

// Ended returns why ctx has ended, or nil if it has not. The error has the text of ctx's cause.
func Ended(ctx context.Context) error {
	if ctx.Err() != nil {
		return conn.ContextError(ctx)
	}
	return nil
}

// Abandoned returns an error once the caller of [Detach], to whose work s was given, has stopped
// waiting, or s is over. It does not block. In the op of a [DoOnce], it keeps an attempt from being
// sent that the caller does not want any more.
func (s *Session) Abandoned() error {
	if s.bound.Work == nil {
		return nil
	}
	if err := s.bound.Work.Unwanted(); err != nil {
		return err
	}
	if s.bound.Life.Err() != nil {
		return context.Cause(s.bound.Life)
	}
	return nil
}

// LetGo makes the caller of [Detach], to whose work s was given, return err now. The work goes on.
// It is for errors that only others can mend, such as a missing permission. On another session it
// does nothing. It does not block.
func (s *Session) LetGo(err error) { s.bound.Work.GiveUp(err) }
