package lock_test

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
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

// A quietContext ends without closing its Done channel, as a context may for a moment.
type quietContext struct {
	context.Context
	ended atomic.Bool
}

func (c *quietContext) Err() error {
	if c.ended.Load() {
		return context.Canceled
	}
	return c.Context.Err()
}

// A call whose ctx is done has failed, whether the grant or the end of ctx came first.
func TestContextThatEndsAtAnyStepFails(t *testing.T) {
	suite.Sweep(t, func(step int) (met bool) {
		recipestest.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
			link, ctx := srv.Link(t), &quietContext{Context: t.Context()}
			m := lock.New(link.Client(t), srv.Root(t)+"/ends")
			suite.Unlock(t, suite.Must(t, m.Lock))
			stop := link.At(step, func() { ctx.ended.Store(true) })
			l, err := m.Lock(ctx)
			if met = !stop(); met {
				require.ErrorIs(t, err, context.Canceled, "step %d", step)
			} else {
				suite.Unlock(t, l)
			}
			suite.Await(t, 0, m.Contenders)
		})
		return met
	})
}

// A busy lock is left alone, and a free one is given back whatever becomes of fn.
func TestTryDoHoldsTheLockOrDoesNotCall(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path, c := srv.Root(t)+"/try", srv.Client(t)
		m, other := lock.New(c, path), lock.New(srv.Client(t), path)
		held := suite.Must(t, other.Lock)
		suite.CatchUp(t, c)
		err := m.TryDo(suite.Lasting(t), func(context.Context, *lock.Lease) error { return nil })
		require.ErrorIs(t, err, lock.ErrLocked)
		require.EqualError(t, err, "lock: "+path+": locked")
		suite.Unlock(t, held)

		suite.CatchUp(t, c)
		failed := errors.New("failed")
		require.ErrorIs(t, m.TryDo(t.Context(), func(ctx context.Context, l *lock.Lease) error {
			require.NoError(t, l.Err())
			require.ErrorIs(t, m.TryDo(ctx, func(context.Context, *lock.Lease) error { return nil }), lock.ErrLocked)
			return failed
		}), failed)
		suite.Await(t, 0, m.Contenders)
		require.Panics(t, func() {
			m.TryDo(t.Context(), func(context.Context, *lock.Lease) error { panic("fn") })
		})
		suite.Await(t, 0, m.Contenders)
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
		suite.Unlock(t, suite.Must(t, m.Lock))
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
		suite.Unlock(t, suite.Must(t, m.Lock)) // deleting the path is the way out
	})
}

func TestDataIsKeptInTheNode(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		c, path := srv.Client(t), srv.Root(t)+"/data"
		m := lock.New(c, path, lock.WithData([]byte("host 7")))
		l := suite.Must(t, m.Lock)
		shown := suite.Await(t, 1, m.Contenders)[0]
		require.Equal(t, "host 7", string(shown.Data))
		require.Equal(t, l.Node(), shown.Node)
		require.Equal(t, l.Token(), shown.Token)
		require.Equal(t, path+"/"+l.Node(), l.Check().Path)
		suite.Unlock(t, l)
		_, err := lock.NewSimple(c, path, tooMuch).Lock(t.Context())
		require.ErrorIs(t, err, protocol.ErrTooLarge)
		_, err = lock.New(c.With(protocol.WithACL(nil)), path).Lock(t.Context())
		require.ErrorContains(t, err, "lock: ")
	})
}

func TestRevokeAsksTheHolder(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link, other, path, ctx := srv.Link(t), srv.Client(t), srv.Root(t)+"/revoked", suite.Lasting(t)
		c, operator := link.Client(t), lock.New(other, path)
		asked := func(revoked <-chan struct{}) bool {
			synctest.Wait()
			select {
			case <-revoked:
				return true
			default:
				return false
			}
		}
		first := suite.Must(t, lock.New(c, path).Lock)
		revoked := first.Revoked()
		require.Equal(t, revoked, first.Revoked())
		waiting := suite.Later(func() *lock.Lease { l, _ := lock.New(c, path).Lock(ctx); return l })
		line := suite.Await(t, 2, operator.Contenders)
		require.NoError(t, operator.Revoke(ctx, line[1].Node), "a waiter may be asked, too")
		require.False(t, asked(revoked))
		require.NoError(t, operator.Revoke(ctx, line[0].Node))
		suite.Wait(t, revoked)
		require.NoError(t, first.Err(), "it is held until it is given back")
		suite.Unlock(t, first)
		second := suite.Wait(t, waiting)
		suite.Wait(t, second.Revoked())
		suite.Unlock(t, second)
		require.ErrorIs(t, operator.Revoke(ctx, line[0].Node), zk.ErrNoNode)
		require.ErrorIs(t, operator.Revoke(ctx, "config"), zk.ErrInvalidPath)

		// A lease may have ended while its node is still there, which can be revoked then.
		const connectionLoss = -4
		third := suite.Must(t, lock.NewSimple(c, path).Lock)
		revoked = third.Revoked()
		time.Sleep(time.Second)
		link.Fail(recipestest.OpAny, path+"/"+third.Node(), connectionLoss, 1_000_000)
		unlocked := suite.Later(func() error { return third.Unlock(ctx) })
		synctest.Wait()
		require.ErrorIs(t, third.Err(), protocol.ErrReleased)
		link.Fail(recipestest.OpAny, path+"/"+third.Node(), connectionLoss, 0)
		require.NoError(t, lock.NewSimple(other, path).Revoke(ctx, third.Node()))
		require.NoError(t, <-unlocked)
		require.False(t, asked(revoked), "revoked after its end")
	})
}

// A Simple and a Mutex at one path are the same lock.
func TestSimpleWaitsUntilTheLineIsEmpty(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/same"
		simple, mutex := lock.NewSimple(srv.Client(t), path), lock.New(srv.Client(t), path)
		held := []*lock.Lease{suite.Must(t, mutex.Lock)}
		require.ErrorIs(t, simple.TryDo(t.Context(), func(context.Context, *lock.Lease) error { return nil }), lock.ErrLocked)
		waiting := suite.Later(func() *lock.Lease { l, _ := simple.Lock(suite.Lasting(t)); return l })
		synctest.Wait()
		next := suite.Later(func() *lock.Lease { l, _ := mutex.Lock(suite.Lasting(t)); return l })
		for range 2 { // the second one came later, and is in line
			synctest.Wait()
			require.Empty(t, waiting)
			suite.Unlock(t, held...)
			if next != nil {
				held, next = []*lock.Lease{suite.Wait(t, next)}, nil
			}
		}
		l := suite.Wait(t, waiting)
		require.NotNil(t, l)
		_, err := mutex.TryLock(t.Context())
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
		suite.Unlock(t, suite.Must(t, m.Lock))
		creates, multis := link.Count(recipestest.OpCreate), link.Count(recipestest.OpMulti)
		_, err := suite.Session(t, srv.Client(t)).Set(t.Context(), path, nil, -1)
		require.NoError(t, err)
		suite.Unlock(t, suite.Must(t, m.Lock))
		require.Equal(t, creates, link.Count(recipestest.OpCreate))
		require.Greater(t, link.Count(recipestest.OpMulti), multis+1)
	})
}
