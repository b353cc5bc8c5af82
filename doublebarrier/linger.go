package doublebarrier

import (
	"context"
	"time"
)

// grace is how long Enter goes on after the end of its ctx to find out whether it was counted.
const grace = 50 * time.Millisecond

// A lingering is a context that ends a while after the one that it was made from, with the same
// error.
type lingering struct {
	context.Context
	done chan struct{}
}

// linger returns a context that ends when ctx has ended and grace is over.
func linger(ctx context.Context) (_ context.Context, stop func() bool) {
	l := &lingering{ctx, make(chan struct{})}
	return l, context.AfterFunc(ctx, func() {
		time.AfterFunc(grace, func() { close(l.done) })
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
