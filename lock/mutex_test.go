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

func TestLockIsGrantedInOrderOfArrival(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		const n = 8
		path := srv.Root(t) + "/order"
		first := lock.New(srv.Client(t), path)
		held, granted := suite.Must(t, first.Lock), make(chan int, n)
		var wait suite.Group
		for i := range n {
			m := lock.New(srv.Client(t), path)
			wait.Go(func() error {
				return m.Do(t.Context(), func(context.Context, *lock.Lease) error { granted <- i; return nil })
			})
			suite.Await(t, i+2, first.Contenders)
		}
		suite.Unlock(t, held)
		require.NoError(t, wait.Wait())
		for i := range n {
			require.Equal(t, i, <-granted)
		}
	})
}

// The log says once, after some seconds, whom a waiter waits for, and so does the error if that is
// the client itself.
func TestWaiterSaysWhomItWaitsFor(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		var log strings.Builder
		c, path := srv.Client(t, protocol.WithLogger(slog.New(slog.NewTextHandler(&log, nil)))), srv.Root(t)+"/lock"
		holder := suite.Must(t, lock.New(srv.Client(t, protocol.WithOwnerData([]byte("cron on db1"))), path).Lock)
		elsewhere := suite.Must(t, lock.New(c, path+"-2").Lock)
		wait := func(m *lock.Mutex) error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			return m.Do(ctx, func(ctx context.Context, _ *lock.Lease) error {
				_, err := m.Lock(ctx)
				return err
			})
		}
		err := wait(lock.New(c, path))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotContains(t, err.Error(), "held by this client", "though it holds another one")
		suite.Unlock(t, holder, elsewhere)
		synctest.Wait()
		require.Equal(t, 1, strings.Count(log.String(), `msg=waits path=`+path+` for=5s behind=`+holder.Node()+` of="cron on db1"`))

		for _, options := range [][]lock.Option{nil, {lock.WithLocalQueue()}} {
			synctest.Wait()
			log.Reset()
			m := lock.New(c, path, options...)
			require.ErrorContains(t, wait(m), "held by this client since 20")
			synctest.Wait()
			require.Equal(t, 1, strings.Count(log.String(), `"held by this client"=true`))
			held := suite.Must(t, m.Lock)
			var none context.Context
			_, err := m.Lock(none)
			require.ErrorContains(t, err, "nil context")
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
			_, err := m.Lock(t.Context())
			require.ErrorIs(t, err, protocol.ErrSequenceExhausted)
			suite.Await(t, 0, m.Contenders)
		}
		require.NoError(t, suite.Session(t, c).Conn().Delete(path, -1))
		use(t, m) // deleting the path is the way out
	})
}

func TestDataIsKeptInTheNode(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		c, path := srv.Client(t), srv.Root(t)+"/data"
		m := lock.New(c, path, lock.WithData([]byte("host 7")))
		l := suite.Must(t, m.Lock)
		require.Equal(t, "host 7", string(suite.Await(t, 1, m.Contenders)[0].Data))
		require.Equal(t, path+"/"+l.Node(), l.Check().Path)
		suite.Unlock(t, l)
		_, err := lock.NewSimple(c, path, tooMuch).Lock(t.Context())
		require.ErrorIs(t, err, protocol.ErrTooLarge)
		require.ErrorContains(t, err, "lock: "+path+": ")
	})
}

// A Simple and a Mutex at one path are the same lock. Who waits in line goes first.
func TestSimpleWaitsUntilTheLineIsEmpty(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/same"
		simple, mutex := lock.NewSimple(srv.Client(t), path), lock.New(srv.Client(t), path)
		held := suite.Must(t, mutex.Lock)
		_, err := simple.TryLock(t.Context())
		require.ErrorIs(t, err, lock.ErrLocked)
		waiting := suite.Later(func() *lock.Lease { l, _ := simple.Lock(suite.Lasting(t)); return l })
		synctest.Wait()
		next := suite.Later(func() *lock.Lease { l, _ := mutex.Lock(suite.Lasting(t)); return l })
		suite.Await(t, 2, mutex.Contenders)
		suite.Unlock(t, held)
		held = suite.Wait(t, next)
		synctest.Wait()
		require.Empty(t, waiting)
		suite.Unlock(t, held)
		l := suite.Wait(t, waiting)
		_, err = mutex.TryLock(t.Context())
		require.ErrorIs(t, err, lock.ErrLocked)
		suite.Unlock(t, l)
	})
}

// A Simple that finds out in the transaction that it is too late looks again, and has created no
// node.
func TestSimpleThatIsTooLateCreatesNoNode(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link := srv.Root(t)+"/simple", srv.Link(t)
		m := lock.NewSimple(link.Client(t), path)
		require.NoError(t, m.Do(t.Context(), func(context.Context, *lock.Lease) error { return nil }))
		creates, multis := link.Count(recipestest.OpCreate), link.Count(recipestest.OpMulti)
		_, err := suite.Session(t, srv.Client(t)).Set(t.Context(), path, nil, -1)
		require.NoError(t, err)
		suite.Unlock(t, suite.Must(t, m.Lock))
		require.Equal(t, creates, link.Count(recipestest.OpCreate))
		require.Greater(t, link.Count(recipestest.OpMulti), multis+1)
	})
}
