package session

import (
	"context"
	"fmt"
	"sync"

	"github.com/zkrecipes/zkrecipes/internal/conn"
	"github.com/zkrecipes/zkrecipes/internal/pace"
)

// A Work has to be finished whatever becomes of its caller. The caller stops waiting when the work
// says that it takes longer than the caller's back-off allows, or that it has met an error which
// only others can mend. The work goes on then. That of Go has no caller.
type Work struct {
	Caller context.Context // what its caller waits under; nil if there is none
	GaveUp chan struct{}   // closed when the caller need not wait any longer
	Err    error           // what the caller gets; set before GaveUp is closed

	given func() // called when GaveUp is closed; nil for most

	mu   sync.Mutex // protects what follows, and Err
	open bool       // an attempt may have been executed
	last error      // what the last attempt died of
}

// NewWork returns work for a caller that waits under this context. If given is not nil, it is called
// once the caller need not wait any longer.
func NewWork(caller context.Context, given func()) *Work {
	return &Work{Caller: caller, GaveUp: make(chan struct{}), given: given}
}

// Nobody is work that nobody waits for.
var Nobody Work

// Context returns a context for the work, which lasts as long as a session does and has the values of
// another one.
func (w *Work) Context(life, values context.Context) context.Context {
	return detachedContext{life, values, w}
}

// WorkOf returns the work whose context ctx is, or nil.
func WorkOf(ctx context.Context) *Work {
	d, _ := ctx.(detachedContext)
	return d.work
}

// A detachedContext is the context of work: it lasts as long as the session, and has the values of
// the caller's.
type detachedContext struct {
	context.Context // the session's life
	values          context.Context
	work            *Work
}

// Value asks the session's life first, which only knows how it was cancelled.
func (d detachedContext) Value(key any) any {
	if v := d.Context.Value(key); v != nil {
		return v
	}
	return d.values.Value(key)
}

// GiveUp makes the caller return err now, if there is one.
func (w *Work) GiveUp(err error) {
	if w == nil || w.Caller == nil {
		return
	}
	w.mu.Lock()
	first := w.Err == nil
	if first {
		w.Err = err
		close(w.GaveUp)
	}
	w.mu.Unlock()
	if first && w.given != nil {
		w.given()
	}
}

// Unwanted returns an error if the caller has stopped waiting. Work asks before it begins something
// that would only have to be undone.
func (w *Work) Unwanted() error {
	if w.Caller == nil {
		return nil
	}
	if w.Caller.Err() != nil {
		return conn.ContextError(w.Caller)
	}
	select {
	case <-w.GaveUp:
		return pace.ErrStopped
	default:
		return nil
	}
}

// unsure notes whether an attempt may have been executed.
func (w *Work) unsure(open bool) {
	if w == nil || w.Caller == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open = open
}

// silent makes the caller return err, because no server answers.
func (w *Work) silent(err error) {
	w.mu.Lock()
	open := w.open
	w.mu.Unlock()
	if open {
		err = fmt.Errorf("%w: %w", ErrUncertain, err)
	}
	w.GiveUp(err)
}

func (w *Work) note(err error) {
	if w == nil || w.Caller == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last = err
}

// ContextError is why ctx ended, and what the work was waiting for at that time.
func (w *Work) ContextError(ctx context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.last == nil {
		return conn.ContextError(ctx)
	}
	return fmt.Errorf("%w: %w", conn.ContextError(ctx), w.last)
}
