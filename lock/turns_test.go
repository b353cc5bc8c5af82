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
	"github.com/zkrecipes/zkrecipes/recipestest"
)

func eachWithLocalQueue(t *testing.T, test func(t *testing.T, srv *recipestest.Server, link *recipestest.Link, m locker)) {
	eachKind(t, func(t *testing.T, srv *recipestest.Server, newLock newFunc) {
		link := srv.Link(t)
		test(t, srv, link, newLock(link.Client(t), srv.Root(t)+"/turns", lock.WithLocalQueue()))
	})
}

func TestGoroutinesThatTakeTurnsHaveOneNode(t *testing.T) {
	eachWithLocalQueue(t, func(t *testing.T, _ *recipestest.Server, _ *recipestest.Link, m locker) {
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

func TestTurnsLetOtherProcessesIn(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/others"
		crowd := lock.New(srv.Client(t), path, lock.WithLocalQueue())
		other := lock.New(srv.Client(t), path)
		held := suite.Must(t, crowd.Lock)
		var granted atomic.Int64
		var wait suite.Group
		for range 8 {
			wait.Go(func() error {
				return crowd.Do(t.Context(), func(context.Context, *lock.Lease) error {
					granted.Add(1)
					return nil
				})
			})
		}

		var before int64
		wait.Go(func() error {
			return other.Do(t.Context(), func(context.Context, *lock.Lease) error {
				before = granted.Load()
				return nil
			})
		})

		suite.Await(t, 2, other.Contenders)
		require.NoError(t, held.Unlock(t.Context()))
		require.NoError(t, wait.Wait())
		require.Zero(t, before, "goroutines of the crowd that overtook a contender in line")
	})
}

func TestTryLockOutOfTurnAsksNoServer(t *testing.T) {
	eachWithLocalQueue(t, func(t *testing.T, _ *recipestest.Server, link *recipestest.Link, m locker) {
		held := suite.Must(t, m.Lock)
		link.Cut()
		_, err := m.TryLock(t.Context())
		require.ErrorIs(t, err, lock.ErrLocked)
		link.Heal()
		require.NoError(t, held.Unlock(t.Context()))
		require.NoError(t, suite.Must(t, m.TryLock).Unlock(t.Context()))
	})
}

func TestCancelledLocalWaiterDoesNotBlockOthers(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		for name, newLock := range kinds {
			m := newLock(srv.Client(t), srv.Root(t)+"/"+name, lock.WithLocalQueue())
			held := suite.Must(t, m.Lock)
			ctx, giveUp := context.WithCancel(t.Context())
			defer giveUp()
			var quitters []<-chan error
			for range 4 {
				quitters = append(quitters, suite.Later(func() error {
					_, err := m.Lock(ctx)
					return err
				}))
			}

			synctest.Wait() // they wait
			for _, q := range quitters {
				require.Empty(t, q)
			}
			giveUp()
			synctest.Wait() // no time passes
			for _, q := range quitters {
				require.Len(t, q, 1)
				require.ErrorIs(t, <-q, context.Canceled)
			}
			require.NoError(t, held.Err())
			require.NoError(t, held.Unlock(t.Context()))
			require.NoError(t, suite.Must(t, m.Lock).Unlock(t.Context()))
		}
	})
}

func TestTurnsGoOnInTheNextSession(t *testing.T) {
	eachWithLocalQueue(t, func(t *testing.T, srv *recipestest.Server, _ *recipestest.Link, m locker) {
		held := suite.Must(t, m.Lock)
		var wait suite.Group
		for range 3 {
			wait.Go(func() error {
				return m.Do(t.Context(), func(context.Context, *lock.Lease) error { return nil })
			})
		}
		line, err := m.Contenders(t.Context())
		require.NoError(t, err)
		srv.ExpireSession(line[0].Session)
		<-held.Done()
		require.NoError(t, wait.Wait())
	})
}

func TestFailedCallEndsItsTurn(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/fails"
		m, other := lock.New(srv.Client(t), path, lock.WithLocalQueue()), lock.New(srv.Client(t), path)
		held := suite.Must(t, other.Lock)
		_, err := m.TryLock(t.Context())
		require.ErrorIs(t, err, lock.ErrLocked)
		ctx, cancel := context.WithCancel(t.Context())
		failed := make(chan error, 1)
		go func() {
			_, err := m.Lock(ctx)
			failed <- err
		}()

		suite.Await(t, 2, other.Contenders)
		cancel()
		require.ErrorIs(t, <-failed, context.Canceled)
		require.NoError(t, held.Unlock(t.Context()))
		require.NoError(t, suite.Must(t, m.Lock).Unlock(t.Context()))
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
		c := srv.Client(t).With(protocol.WithObserver(events))
		for name, newLock := range kinds {
			m := newLock(c, srv.Root(t)+"/"+name, lock.WithLocalQueue())
			held := suite.Must(t, m.Lock)
			require.NoError(t, events.waited(t).Err)

			_, err := m.TryLock(t.Context())
			require.ErrorIs(t, err, lock.ErrLocked)
			require.Error(t, events.waited(t).Err)

			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, err = m.Lock(ctx)
			cancel()
			require.ErrorIs(t, err, context.DeadlineExceeded)
			e := events.waited(t)
			require.ErrorIs(t, e.Err, context.DeadlineExceeded)
			require.Equal(t, time.Second, e.Duration)

			next := suite.Later(func() error {
				l, err := m.Lock(t.Context())
				if err != nil {
					return err
				}
				return l.Unlock(t.Context())
			})
			time.Sleep(2 * time.Second)
			require.NoError(t, held.Unlock(t.Context()))
			require.NoError(t, suite.Wait(t, next))
			e = events.waited(t)
			require.NoError(t, e.Err)
			require.GreaterOrEqual(t, e.Duration, 2*time.Second)
		}
	})
}
