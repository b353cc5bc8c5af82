package session

import (
	"context"
	"time"
)

// Linger returns a context that ends d after ctx, with the same error, and has the values of ctx. A
// call that needs a moment to clean up after ctx uses it. stop releases the context.
func Linger(ctx context.Context, d time.Duration) (_ context.Context, stop func() bool) {
	l := &lingering{ctx, make(chan struct{})}
	return l, context.AfterFunc(ctx, func() {
		time.AfterFunc(d, func() { close(l.done) })
	})
}

type lingering struct {
	context.Context
	done chan struct{}
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
