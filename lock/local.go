package lock

import (
	"context"

	"github.com/zkrecipes/zkrecipes/protocol/line"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// A localQueue makes callers of one process wait for each other. It has an element while any caller
// is in line or holds the lock.
type localQueue chan struct{}

// WithLocalQueue is for a lock that many goroutines of a process share. They wait for each other
// inside the process, first come, first served, and have at most one node in line.
//
// After a goroutine has unlocked, the next goroutine goes to the end of the line. So other
// processes get the lock in between, and each process gets it equally often, however many
// goroutines it has. If there is no other process, the lock passes from goroutine to goroutine in
// one round trip each. While another goroutine of the queue is in line or holds the lock, TryLock
// returns [ErrLocked] without asking the server.
//
// The queue belongs to one Mutex or Simple, so share the value and not only its path.
func WithLocalQueue() Option {
	return func(m *Mutex) error {
		m.local = make(localQueue, 1)
		return nil
	}
}

// An attempt tries to get the lock under one session.
type attempt func(context.Context, *recipe.Session, *line.Request) (*recipe.Grant, error)

// take calls acquire when it is the caller's turn, which ends when the grant does.
func (q localQueue) take(ctx context.Context, s *recipe.Session, request *line.Request,
	acquire attempt) (g *recipe.Grant, err error) {
	if q == nil {
		return acquire(ctx, s, request)
	}

	if err := q.wait(ctx, s, request.Try); err != nil {
		return nil, err
	}
	defer func() { // also if acquire panics
		if g == nil {
			<-q
		} else {
			g.AfterFunc(func() { <-q })
		}
	}()
	return acquire(ctx, s, request)
}

func (q localQueue) wait(ctx context.Context, s *recipe.Session, try bool) error {
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
		return recipe.Ended(ctx)
	}
}
