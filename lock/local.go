package lock

import (
	"context"

	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// A localQueue makes callers of one process wait for each other. It holds a ticket while no caller
// is in line and none holds the lock. A caller takes the ticket, and puts it back when it is done.
type localQueue chan struct{}

func newLocalQueue() localQueue {
	q := make(localQueue, 1)
	q <- struct{}{}
	return q
}

// await blocks until signal can be received from, ctx ends or the session ends.
func await[T any](ctx context.Context, s *recipe.Session, signal <-chan T) error {
	select {
	case <-signal:
		return nil
	case <-s.Done():
		return s.Err()
	case <-ctx.Done():
		return recipe.Ended(ctx)
	}
}
