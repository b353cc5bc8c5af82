package protocol

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/go-zookeeper/zk"
)

// Detach runs work, which changes something at the servers and must not be left half-way, to its
// end even if the caller stops waiting. The context of work lasts as long as s does, not as long as
// ctx.
//
// Detach blocks until work returns or ctx ends, or until work meets an error that only others can
// mend, or one that takes longer to go away than the view's back-off allows. In the latter cases
// Detach returns that error, or ctx's. Work then goes on in the background, and if it succeeds its
// result goes to undo, unless that is nil. Before it begins something, work asks [Wanted] whether
// the caller still waits.
//
// In work of another Detach, under the very ctx of that work, it simply calls work. After
// [Client.Close] it returns [ErrClosed]. It is safe for concurrent use.
func Detach[T any](ctx context.Context, s *Session, work func(context.Context) (T, error), undo func(T)) (T, error) {
	if ctx == nil {
		var zero T
		return zero, errNilContext
	}
	if d, already := ctx.(*detached); already && d.caller != nil {
		return work(ctx)
	}
	return runDetached(ctx, s, work, undo)
}

// runDetached is the part of [Detach] that is not on the stack of its work.
func runDetached[T any](ctx context.Context, s *Session, work func(context.Context) (T, error), undo func(T)) (T, error) {
	type result struct {
		v   T
		err error
	}
	var zero T
	d := detach(ctx, s.session)
	answer, left := make(chan result), make(chan struct{})
	defer close(left)
	started := s.client.spawn(func() {
		v, err := work(d)
		select {
		case answer <- result{v, err}:
		case <-left:
			if err == nil && undo != nil {
				undo(v)
			}
		}
	})
	if !started {
		return zero, ErrClosed
	}

	select {
	case r := <-answer:
		return r.v, r.err
	case <-d.gaveUp:
		return zero, d.err
	case <-ctx.Done():
		return zero, d.contextError(ctx)
	}
}

// Wanted returns an error once the caller of [Detach], whose work runs under ctx, has stopped
// waiting. Once ctx has ended it returns ctx's error, or the session's if that has ended the work.
// It does not block. In the op of a [DoOnce], it keeps an attempt from being sent that the caller
// does not want any more.
func Wanted(ctx context.Context) error {
	if d := detachedFrom(ctx); d != nil {
		if err := d.unwanted(); err != nil {
			return err
		}
		if d.Err() != nil {
			return context.Cause(d)
		}
	}
	if ctx.Err() != nil {
		return contextError(ctx)
	}
	return nil
}

// LetGo makes the caller of [Detach], whose work runs under ctx, return err now. The work goes on.
// It is for errors that only others can mend, such as a missing permission. Under another ctx it
// does nothing. It does not block.
func LetGo(ctx context.Context, err error) { detachedFrom(ctx).giveUp(err) }

// Caller returns the context of the caller for whom work of [Detach] is done under ctx, for the
// values in events. Of another ctx it returns that.
func Caller(ctx context.Context) context.Context {
	for {
		d := detachedFrom(ctx)
		if d == nil || d.caller == nil {
			return ctx
		}
		ctx = d.caller
	}
}

// A detached is the context of work that has to be finished whatever becomes of its caller. It
// lasts as long as the session. The caller stops waiting when the work says that it takes longer
// than the caller's back-off allows, or that it has met an error which only others can mend. The
// work goes on then. The session's own, which is that of [Session.Go], has no caller.
type detached struct {
	context.Context                 // the session's life
	caller          context.Context // what its caller waits under; nil if there is none
	gaveUp          chan struct{}   // closed when the caller need not wait any longer

	mu   sync.Mutex // protects what follows
	err  error      // what the caller gets; set before gaveUp is closed
	last error      // what the last attempt died of
}

func detach(caller context.Context, s *session) *detached {
	return &detached{Context: s.life, caller: caller, gaveUp: make(chan struct{})}
}

type detachedKey struct{}

func (d *detached) Value(key any) any {
	if key == (detachedKey{}) {
		return d
	}
	return d.Context.Value(key)
}

// detachedFrom returns the detached that ctx is or was made from, if any.
func detachedFrom(ctx context.Context) *detached {
	d, _ := ctx.Value(detachedKey{}).(*detached)
	return d
}

func (d *detached) giveUp(err error) {
	if d == nil || d.caller == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err == nil {
		d.err = err
		close(d.gaveUp)
	}
}

// unwanted returns an error if the caller has stopped waiting. Work asks before it begins something
// that would only have to be undone.
func (d *detached) unwanted() error {
	if d.caller == nil {
		return nil
	}
	if d.caller.Err() != nil {
		return contextError(d.caller)
	}
	select {
	case <-d.gaveUp:
		return errGivenUp
	default:
		return nil
	}
}

func (d *detached) note(err error) {
	if d == nil || d.caller == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.last = err
}

// contextError is why ctx ended, and what the work was waiting for at that time.
func (d *detached) contextError(ctx context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.last == nil {
		return contextError(ctx)
	}
	return fmt.Errorf("%w: %w", contextError(ctx), d.last)
}

// insist calls op until it succeeds or finds that the node is gone, or the session is over, if ctx
// is that of work that has to be finished: the caller gets the first error, and op is repeated in
// the background, as others may mend what it died of. Under another ctx it calls op once. path is
// for the log.
func (s *Session) insist(ctx context.Context, path string, op func() error) error {
	d := detachedFrom(ctx)
	pause := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(100*time.Millisecond),
		backoff.WithMaxInterval(recheckAfter),
		backoff.WithMaxElapsedTime(0))
	for first := true; ; first = false {
		err := op()
		if err == nil || errors.Is(err, zk.ErrNoNode) || d == nil || ctx.Err() != nil || s.Err() != nil {
			return err
		}
		if first {
			s.client.log.Error("not cleaned up yet", "path", path, "error", err)
		}
		d.giveUp(err)
		if failed := s.client.pause(ctx, s, s.Done(), pause.NextBackOff(), err); failed != nil {
			return err
		}
	}
}
