package lock_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

func TestGoroutinesThatTakeTurnsHaveOneNode(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		m := lock.New(srv.Client(t), srv.Root(t)+"/turns", lock.WithLocalQueue())
		var holders, last atomic.Int64
		var wait suite.Group
		for range 16 {
			wait.Go(func() error {
				return m.Do(t.Context(), func(ctx context.Context, l *lock.Lease) error {
					if n := holders.Add(1); n != 1 {
						return fmt.Errorf("%d holders", n)
					}
					defer holders.Add(-1)
					if before := last.Swap(l.Token()); before >= l.Token() {
						return fmt.Errorf("token %d after %d", l.Token(), before)
					}
					line, err := m.Contenders(ctx)
					if err == nil && len(line) != 1 {
						err = fmt.Errorf("%d in line", len(line))
					}
					return err
				})
			})
		}
		require.NoError(t, wait.Wait())
	})
}

func TestTryLockOutOfTurnAsksNoServer(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link := srv.Link(t)
		m := lock.New(link.Client(t), srv.Root(t)+"/turns", lock.WithLocalQueue())
		held := suite.Must(t, m.Lock)
		link.Cut()
		_, err := m.TryLock(t.Context())
		require.ErrorIs(t, err, lock.ErrLocked)
		link.Heal()
		suite.Unlock(t, held)
		suite.Unlock(t, suite.Must(t, m.TryLock))
	})
}

// A recipe takes a lock in work that must be finished, and gives that less time. The wait ends with
// the shorter context, and the caller has not got its turn.
func TestWaitInTheLocalQueueUnderAShorterContextOfDetachedWork(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		c := srv.Client(t)
		m := lock.New(c, srv.Root(t)+"/lock", lock.WithLocalQueue())
		holder := suite.Must(t, m.Lock)
		_, err := recipe.Detach(t.Context(), suite.Session(t, c), func(ctx context.Context, _ *recipe.Session) (*lock.Lease, error) {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			return m.Lock(ctx)
		}, nil)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		next := suite.Later(func() error { return m.Do(t.Context(), func(context.Context, *lock.Lease) error { return nil }) })
		synctest.Wait()
		suite.Await(t, 1, m.Contenders) // the next one waits in the local queue
		suite.Unlock(t, holder)
		require.NoError(t, suite.Wait(t, next))
	})
}

// An observer keeps the events that it is told, in order.
type observer chan protocol.Event

func (o observer) Observe(e protocol.Event) { o <- e }

func (o observer) waited(t *testing.T) protocol.Event {
	t.Helper()
	for {
		if e := suite.Wait(t, o); e.Kind == protocol.EventAcquired {
			return e
		}
	}
}

func TestWaitInTheLocalQueueIsObserved(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		events := make(observer, 1000)
		m := lock.New(srv.Client(t).With(protocol.WithObserver(events)), srv.Root(t)+"/lock", lock.WithLocalQueue())
		held := suite.Must(t, m.Lock)
		require.NoError(t, events.waited(t).Err)
		_, err := m.TryLock(t.Context())
		require.ErrorIs(t, err, lock.ErrLocked)
		require.Error(t, events.waited(t).Err)

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = m.Lock(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		e := events.waited(t)
		require.ErrorIs(t, e.Err, context.DeadlineExceeded)
		require.Equal(t, time.Second, e.Duration)

		next := suite.Later(func() error { return m.Do(t.Context(), func(context.Context, *lock.Lease) error { return nil }) })
		time.Sleep(2 * time.Second)
		suite.Unlock(t, held)
		require.NoError(t, suite.Wait(t, next))
		e = events.waited(t)
		require.NoError(t, e.Err)
		require.GreaterOrEqual(t, e.Duration, 2*time.Second)
	})
}
