package session

import (
	"context"
	"fmt"
	"sync"

	"github.com/zkrecipes/zkrecipes/internal/conn"
	"github.com/zkrecipes/zkrecipes/internal/pace"
)

// A Work must run to completion even if its caller leaves. The caller leaves when its context
// ends, or when the work lets it go: because an error outlasts the caller's back-off, or because
// only other clients can remove the cause of an error. Then the work goes on.
type Work struct {
	Caller context.Context // the caller's context; nil for work without a caller
	GaveUp chan struct{}   // closed when the work lets the caller go
	Err    error           // the caller's error; set before GaveUp is closed

	mu       sync.Mutex // protects the fields below, and Err
	released func()     // see Release; nil for most
	open     bool       // an attempt was perhaps executed
	last     error      // of the last attempt
}

// NewWork returns work for a caller with this context. If released is not nil, the first
// [Work.Release] calls it.
func NewWork(caller context.Context, released func()) *Work {
	return &Work{Caller: caller, GaveUp: make(chan struct{}), released: released}
}

// Release notes that nobody waits for the work any more, or that it is done.
func (w *Work) Release() {
	w.mu.Lock()
	released := w.released
	w.released = nil
	w.mu.Unlock()
	if released != nil {
		released()
	}
}

// Nobody is the work without a caller.
var Nobody Work

// Context returns a context for the work. It ends with life and has the values of values.
func (w *Work) Context(life, values context.Context) context.Context {
	return detachedContext{life, values, w}
}

// WorkOf returns the work whose context ctx is, or nil.
func WorkOf(ctx context.Context) *Work {
	d, _ := ctx.(detachedContext)
	return d.work
}

// A detachedContext is the context of work.
type detachedContext struct {
	context.Context // the session's life
	values          context.Context
	work            *Work
}

// Value asks the session's life first because package context finds out there how it was
// cancelled.
func (d detachedContext) Value(key any) any {
	if v := d.Context.Value(key); v != nil {
		return v
	}
	return d.values.Value(key)
}

// hasCaller reports whether w is work that has or had a caller. w can be nil.
func (w *Work) hasCaller() bool { return w != nil && w.Caller != nil }

// GiveUp lets the caller go, with err.
func (w *Work) GiveUp(err error) {
	if !w.hasCaller() {
		return
	}

	w.mu.Lock()
	if w.Err == nil {
		w.Err = err
		close(w.GaveUp)
	}

	w.mu.Unlock()
	w.Release()
}

// Unwanted returns an error if the caller has left. Work asks before it begins something that it
// would only have to undo.
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

// unsure notes whether an attempt was perhaps executed.
func (w *Work) unsure(open bool) {
	if !w.hasCaller() {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open = open
}

// silent lets the caller go with err because no server answers.
func (w *Work) silent(err error) {
	w.mu.Lock()
	open := w.open
	w.mu.Unlock()
	if open {
		err = fmt.Errorf("%w: %w", ErrUncertain, err)
	}
	w.GiveUp(err)
}

// note notes the error of the last attempt.
func (w *Work) note(err error) {
	if !w.hasCaller() {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last = err
}

// ContextError returns why ctx ended, and the error of the attempt before that.
func (w *Work) ContextError(ctx context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.last == nil {
		return conn.ContextError(ctx)
	}
	return fmt.Errorf("%w: %w", conn.ContextError(ctx), w.last)
}
