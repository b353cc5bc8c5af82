package session

import (
	"context"
	"time"
)

// A lingering is a context that ends a while after the context that it was made from.
type lingering struct {
	context.Context
	done chan struct{}
}

// Linger returns a context that ends d after ctx, with the same error, and has the values of ctx. It
// is for calls that need a moment to find out, or to clean up, when ctx has ended. stop releases it.
func Linger(ctx context.Context, d time.Duration) (_ context.Context, stop func() bool) {
	l := &lingering{ctx, make(chan struct{})}
	return l, context.AfterFunc(ctx, func() {
		time.AfterFunc(d, func() { close(l.done) })
	})
}

func (l *lingering) Deadline() (deadline time.Time, ok bool) { return time.Time{}, false }

func (l *lingering) Done() <-chan struct{} { return l.done }

func (l *lingering) Err() error {
	select {
	case <-l.done:
		return l.Context.Err()
	default:
		return nil
	}
}
