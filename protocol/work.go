package protocol

import (
	"context"
	"fmt"
	"sync"

	"github.com/zkrecipes/zkrecipes/internal/conn"
	"github.com/zkrecipes/zkrecipes/internal/pace"
)

// A work has to be finished whatever becomes of its caller. The caller stops waiting when the work
// says that it takes longer than the caller's back-off allows, or that it has met an error which
// only others can mend. The work goes on then. That of [Session.Go] has no caller.
type work struct {
	caller context.Context // what its caller waits under; nil if there is none
	gaveUp chan struct{}   // closed when the caller need not wait any longer

	given func() // called when gaveUp is closed; nil for most

	mu   sync.Mutex // protects what follows
	open bool       // an attempt may have been executed
	err  error      // what the caller gets; set before gaveUp is closed
	last error      // what the last attempt died of
}

func newWork(caller context.Context) *work {
	return &work{caller: caller, gaveUp: make(chan struct{})}
}

// nobody is work that nobody waits for.
var nobody work

// A detachedContext is the context of work: it lasts as long as the session, and has the values of
// the caller's.
type detachedContext struct {
	context.Context // the session's life
	values          context.Context
	work            *work
}

// Value asks the session's life first, which only knows how it was cancelled.
func (d detachedContext) Value(key any) any {
	if v := d.Context.Value(key); v != nil {
		return v
	}
	return d.values.Value(key)
}

func (w *work) giveUp(err error) {
	if w == nil || w.caller == nil {
		return
	}
	w.mu.Lock()
	first := w.err == nil
	if first {
		w.err = err
		close(w.gaveUp)
	}
	w.mu.Unlock()
	if first && w.given != nil {
		w.given()
	}
}

// unwanted returns an error if the caller has stopped waiting. Work asks before it begins something
// that would only have to be undone.
func (w *work) unwanted() error {
	if w.caller == nil {
		return nil
	}
	if w.caller.Err() != nil {
		return conn.ContextError(w.caller)
	}
	select {
	case <-w.gaveUp:
		return errGivenUp
	default:
		return nil
	}
}

// unsure notes whether an attempt may have been executed.
func (w *work) unsure(open bool) {
	if w == nil || w.caller == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open = open
}

// silent makes the caller return err, because no server answers.
func (w *work) silent(err error) {
	w.mu.Lock()
	open := w.open
	w.mu.Unlock()
	if open {
		err = fmt.Errorf("%w: %w", ErrUncertain, err)
	}
	w.giveUp(err)
}

func (w *work) note(err error) {
	if w == nil || w.caller == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last = err
}

// contextError is why ctx ended, and what the work was waiting for at that time.
func (w *work) contextError(ctx context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.last == nil {
		return conn.ContextError(ctx)
	}
	return fmt.Errorf("%w: %w", conn.ContextError(ctx), w.last)
}

// errGivenUp is wrapped by the error of a call whose back-off came to its end.
var errGivenUp = pace.ErrStopped
