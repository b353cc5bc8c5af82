package lock_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

func TestGoroutinesThatTakeTurnsHaveOneNode(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		m := lock.New(srv.Client(t), srv.Root(t)+"/turns", lock.WithLocalQueue())
		var wait suite.Group
		for range 16 {
			wait.Go(func() error {
				return m.Do(t.Context(), func(ctx context.Context, l *lock.Lease) error {
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

// A caller that gives up while it waits does not take a turn.
func TestCallerOutOfTurnAsksNoServer(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link := srv.Link(t)
		m := lock.New(link.Client(t), srv.Root(t)+"/turns", lock.WithLocalQueue())
		held := suite.Must(t, m.Lock)
		synctest.Wait()
		require.Zero(t, link.Count(recipestest.OpGetChildren), "no node is kept, so the line isn't watched")
		link.Cut()
		require.ErrorIs(t, suite.Err(m.TryLock(t.Context())), lock.ErrLocked)
		ctx := suite.Within(t, time.Second)
		require.ErrorIs(t, suite.Err(m.Lock(ctx)), context.DeadlineExceeded)
		link.Heal()
		suite.Unlock(t, held)
		suite.Unlock(t, suite.Must(t, m.TryLock))
	})
}

// A caller that comes right after Unlock, or right after a loss, finds the ticket, whoever should
// have put it back by then. A caller that waits gets it.
func TestTicketIsBackOnceALeaseHasEnded(t *testing.T) { //nolint:paralleltest // it sets GOMAXPROCS
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for name, option := range map[string]lock.Option{"local queue": lock.WithLocalQueue(), "linger": lock.WithLinger(time.Second)} {
		recipestest.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
			path := srv.Root(t) + "/turns"
			m, operator := lock.New(srv.Client(t), path, option), lock.New(srv.Client(t), path)
			for range 100 {
				suite.Unlock(t, suite.Must(t, m.TryLock))
				l := suite.Must(t, m.TryLock)
				time.Sleep(time.Second) // the node is watched
				require.NoError(t, operator.Break(t.Context(), l.Node()))
				suite.Wait(t, l.Done())
				l, err := m.TryLock(t.Context())
				require.NoError(t, err, name)

				waits := suite.Later(func() int64 { return use(t, m) })
				time.Sleep(time.Second)
				require.NoError(t, operator.Break(t.Context(), l.Node()))
				suite.Wait(t, waits)
			}
			time.Sleep(time.Minute) // nothing lingers
		})
	}
}
