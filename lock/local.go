package lock

import (
	"context"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/line"
)

// A localQueue makes callers of one process wait for each other. It has an element while any caller
// is in line or holds the lock.
type localQueue chan struct{}

func (q localQueue) wait(ctx context.Context, s *protocol.Session, try bool) error {
	if try {
		select {
		case q <- struct{}{}:
			return nil
		default:
			return line.ErrBusy
		}
	}

	select {
	case q <- struct{}{}:
		return nil
	case <-s.Done():
		return s.Err()
	case <-ctx.Done():
		return protocol.Ended(ctx)
	}
}
