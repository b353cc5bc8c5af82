package lock

import (
	"context"
	"errors"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/line"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// A Simple is an unfair lock with one ephemeral node, its holder's. Waiters have no node and no
// order: a release wakes all of them, and any waiter or newcomer gets the lock. Use it for locks
// that are tried more often than waited for. It is safe for concurrent use.
//
// A Simple and a [Mutex] at one path are the same lock. The Simple gets it when the line is empty.
type Simple struct{ mutex Mutex }

// NewSimple returns the simple lock at path, a node of its own that is created as needed. NewSimple
// does no I/O and cannot fail: the first call reports a nil client or a bad path.
func NewSimple(c *protocol.Client, path string, opts ...Option) *Simple {
	s := &Simple{*New(c, path, opts...)}
	if s.mutex.linger.d > 0 {
		s.mutex.recipe.Reject(errors.New("a Simple cannot linger"))
	}
	s.mutex.acquire = s.claim
	return s
}

// claim waits without a node of its own until the lock can be granted at once.
func (s *Simple) claim(ctx context.Context, session *recipe.Session, request *line.Request) (*recipe.Grant, error) {
	for {
		g, holder, err := s.mutex.line.Claim(ctx, session, request)
		if _, lingers := line.ParseName(holder, line.Lingering); lingers {
			// Its holder gives the lock back to those who are in line.
			return s.mutex.line.Join(ctx, session, request)
		} else if !errors.Is(err, line.ErrBusy) || request.Try {
			return g, err
		}

		// If there is no name, another contender was faster and the next look finds it.
		if holder != "" {
			if err := s.mutex.line.Gone(ctx, session, holder); err != nil {
				return nil, err
			}
		}
	}
}

// Lock waits until no contender holds the lock or is in line for it and takes it. It blocks and
// returns errors as [Mutex.Lock] does. If a session is lost, it goes on waiting in the next
// session.
func (s *Simple) Lock(ctx context.Context) (*Lease, error) { return s.mutex.Lock(ctx) }

// TryLock is [Mutex.TryLock].
func (s *Simple) TryLock(ctx context.Context) (*Lease, error) { return s.mutex.TryLock(ctx) }

// Do calls fn while it holds the lock, as [Mutex.Do] does.
func (s *Simple) Do(ctx context.Context, fn func(ctx context.Context, l *Lease) error) error {
	return s.mutex.Do(ctx, fn)
}

// TryDo is [Mutex.TryDo].
func (s *Simple) TryDo(ctx context.Context, fn func(ctx context.Context, l *Lease) error) error {
	return s.mutex.TryDo(ctx, fn)
}

// Contenders returns the holder (if there is one) as [Mutex.Contenders] does. Waiters of a Simple
// have no node to show.
func (s *Simple) Contenders(ctx context.Context) ([]Contender, error) { return s.mutex.Contenders(ctx) }

// Break deletes the holder's node, as [Mutex.Break] does.
func (s *Simple) Break(ctx context.Context, node string) error { return s.mutex.Break(ctx, node) }

// Revoke asks the holder to give the lock back, as [Mutex.Revoke] does.
func (s *Simple) Revoke(ctx context.Context, node string) error { return s.mutex.Revoke(ctx, node) }
