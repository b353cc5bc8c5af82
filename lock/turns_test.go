package lock_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/lock"
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
	eachWithLocalQueue(t, func(t *testing.T, _ *recipestest.Server, _ *recipestest.Link, m locker) {
		held := suite.Must(t, m.Lock)
		ctx, cancel := context.WithCancel(t.Context())
		var quitters suite.Group
		for range 4 {
			quitters.Go(func() error {
				_, err := m.Lock(ctx)
				if err == nil {
					err = fmt.Errorf("granted to a caller that had given up")
				}
				if ctx.Err() == nil {
					return err
				}
				return nil
			})
		}

		cancel()
		require.NoError(t, quitters.Wait())
		require.NoError(t, held.Err())
		require.NoError(t, held.Unlock(t.Context()))
		require.NoError(t, suite.Must(t, m.Lock).Unlock(t.Context()))
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
