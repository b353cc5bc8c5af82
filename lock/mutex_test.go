package lock_test

import (
	"context"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

func TestMain(m *testing.M) { suite.Main(m) }

// The log says once, after some seconds, whom a waiter waits for, and so does the error if that is
// the client itself.
func TestWaiterSaysWhomItWaitsFor(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		var log strings.Builder
		c, path := srv.Client(t, protocol.WithLogger(slog.New(slog.NewTextHandler(&log, nil)))), srv.Root(t)+"/lock"
		holder := suite.Must(t, lock.New(srv.Client(t, protocol.WithOwnerData([]byte("cron on db1"))), path).Lock)
		elsewhere := suite.Must(t, lock.New(c, path+"-2").Lock)
		wait := func(m *lock.Mutex, most time.Duration) error {
			ctx := suite.Within(t, most)
			return m.Do(ctx, func(ctx context.Context, _ *lock.Lease) error {
				_, err := m.Lock(ctx)
				return err
			})
		}
		for _, most := range []time.Duration{time.Second, time.Minute} {
			require.ErrorIs(t, wait(lock.New(c, path), most), context.DeadlineExceeded)
		}
		suite.Unlock(t, holder, elsewhere)
		synctest.Wait()
		require.Equal(t, 1, strings.Count(log.String(), `msg=waits path=`+path+` for=5s behind=`+holder.Node()+` of="cron on db1"`))

		for _, options := range [][]lock.Option{nil, {lock.WithLocalQueue()}} {
			synctest.Wait()
			log.Reset()
			m := lock.New(c, path, options...)
			require.ErrorIs(t, wait(m, time.Minute), context.DeadlineExceeded)
			synctest.Wait()
			require.Equal(t, 1, strings.Count(log.String(), `"held by this client"=true`))
			held := suite.Must(t, m.Lock)
			suite.Unlock(t, held)
		}
	})
}

func TestNumbersNearTheCountersEndAreRefused(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		c, path := srv.Client(t), srv.Root(t)+"/end"
		m := lock.New(c, path)
		use(t, m)
		const end = 1<<31 - 1<<20
		require.NoError(t, srv.Embedded().SetSequence(path, end-1))
		l := suite.Must(t, m.Lock)
		require.True(t, strings.HasSuffix(l.Node(), "lock-"+strconv.Itoa(end-1)), l.Node())
		suite.Unlock(t, l)
		for range 2 {
			require.ErrorIs(t, suite.Err(m.Lock(t.Context())), protocol.ErrSequenceExhausted)
			suite.Await(t, 0, m.Contenders)
		}
		require.NoError(t, suite.Session(t, c).Conn().Delete(path, -1))
		use(t, m) // deleting the path is the way out
	})
}
