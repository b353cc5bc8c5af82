package session

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/conn"
	"github.com/zkrecipes/zkrecipes/internal/pace"
)

// A Work must run to completion even if its caller leaves. The caller leaves when its context
// ends, or when the work lets it go: because an error outlasts the caller's back-off, or because
// only other clients can remove the cause of an error. Then the work goes on.
//
// It is a context, too: it lasts as long as the session, and has the values of its caller.
type Work struct {
	context.Context                 // the session's life
	Caller          context.Context // the caller's context; nil for work without a caller
	GaveUp          chan struct{}   // closed when the work lets the caller go
	Failure         error           // the caller's error; set before GaveUp is closed

	mu       sync.Mutex // protects the fields below, and Failure
	released func()     // see Release; nil for most
	open     bool       // an attempt was perhaps executed
	last     error      // of the last attempt
}

// NewWork returns work for a caller with this context. If released is not nil, the first
// [Work.Release] calls it. (The work without a caller is [Session.Nobody].)
func NewWork(life, caller context.Context, released func()) *Work {
	return &Work{Context: life, Caller: caller, GaveUp: make(chan struct{}), released: released}
}

// SpawnWork is [Client.Spawn] for work. Its goroutines stay for a moment to run the next work:
// their stacks have grown already, which is a twentieth of what a lock and unlock cost a client.
func (s *Session) SpawnWork(f func()) bool {
	select {
	case s.next <- f:
		return true
	default:
		return s.Spawn(func() { s.work(f) })
	}
}

// work runs f, and what comes within a moment after that.
func (s *Session) work(f func()) {
	const stay = 100 * time.Millisecond
	over := time.NewTimer(stay)
	defer over.Stop()

	for {
		f()
		over.Reset(stay)
		select {
		case f = <-s.next:
		case <-over.C:
			return
		case <-s.Life.Done():
			return
		}
	}
}

// Value asks the session's life first because package context finds out there how it was
// cancelled.
func (w *Work) Value(key any) any {
	if v := w.Context.Value(key); v != nil || w.Caller == nil {
		return v
	}
	return w.Caller.Value(key)
}

// WorkOf returns the work whose context ctx is, or nil.
func WorkOf(ctx context.Context) *Work {
	w, _ := ctx.(*Work)
	return w
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

// hasCaller reports whether w is work that has or had a caller. w can be nil.
func (w *Work) hasCaller() bool { return w != nil && w.Caller != nil }

// like reports whether attempts for v end as those for w do.
func (w *Work) like(v *Work) bool {
	return w == v || v != nil && w.Caller == nil && v.Caller == nil
}

// GiveUp lets the caller go, with err.
func (w *Work) GiveUp(err error) {
	if !w.hasCaller() {
		return
	}

	w.mu.Lock()
	if w.Failure == nil {
		w.Failure = err
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
