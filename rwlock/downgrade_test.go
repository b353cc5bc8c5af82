package rwlock_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/rwlock"
)

// Codes of servers' answers.
const connectionLoss, noAuth, badVersion, throttled = -4, -102, -103, -127

// (The law "together" has readers and writers wait.)
func TestReadLeaseTakesTheWritersPlace(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		m := rwlock.New(srv.Client(t), srv.Root(t)+"/down", rwlock.WithData([]byte("mine")))
		writing := must(t, write, m)
		reading := suite.Must(t, writing.Downgrade)
		require.False(t, reading.Exclusive())
		require.True(t, writing.Exclusive())
		require.ErrorIs(t, writing.Err(), protocol.ErrReleased)
		require.NoError(t, writing.Unlock(t.Context()), "does nothing")
		require.ErrorIs(t, suite.Err(writing.Downgrade(t.Context())), protocol.ErrReleased)

		line := suite.Await(t, 1, m.Contenders)
		require.Equal(t, strings.ReplaceAll(writing.Node(), "write-", "read-"), line[0].Node)
		require.Equal(t, "mine", string(line[0].Data))
		require.False(t, line[0].Exclusive)
		same := suite.Must(t, reading.Downgrade)
		require.Same(t, reading, same, "a read lease is returned as it is")
		suite.Unlock(t, reading)
		require.ErrorIs(t, suite.Err(reading.Downgrade(t.Context())), protocol.ErrReleased)
	})
}

func TestDowngradeInDoLeavesTheReadLeaseToFn(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		m := rwlock.New(srv.Client(t), srv.Root(t)+"/do")
		var reading *rwlock.Lease
		require.NoError(t, m.Do(t.Context(), func(ctx context.Context, l *rwlock.Lease) (err error) {
			reading, err = l.Downgrade(ctx)
			if ctx.Err() == nil {
				return errors.New("the writer's ctx goes on")
			}
			return err
		}))
		require.NoError(t, reading.Err())
		suite.Unlock(t, reading)
		suite.Await(t, 0, m.Contenders)
	})
}

// The servers answer that they do not know whether they have carried out the transaction, and then
// refuse to say whether the reader's node is there.
func TestDowngradeOfUnknownOutcomeSaysSo(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link := srv.Link(t)
		m := rwlock.New(link.Client(t), srv.Root(t)+"/down")
		writing := must(t, write, m)
		link.Fail(recipestest.OpMulti, "", connectionLoss, 1)
		link.Fail(recipestest.OpExists, "", noAuth, 1)
		require.ErrorIs(t, suite.Err(writing.Downgrade(t.Context())), protocol.ErrUncertain)
		require.ErrorIs(t, writing.Err(), protocol.ErrReleased)
		suite.Await(t, 0, m.Contenders)
	})
}

// The answer is lost, and what has become of the transaction is found out late. Meanwhile the
// holder's watch finds that the writer's node is gone. The observer sees that the writer's hold has
// ended and the reader's has begun, and no loss.
func TestDowngradeWhoseAnswerIsLostIsNotMistakenForALoss(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link, events := srv.Root(t)+"/down", srv.Link(t), make(observer, 20)
		m := rwlock.New(link.Client(t, protocol.WithObserver(events)), path)
		watched := link.Answered(recipestest.OpGetData, 1)
		writing := must(t, write, m)
		suite.Wait(t, watched)

		link.LoseReply(recipestest.OpMulti, 1)
		link.Fail(recipestest.OpDelete, "", throttled, 5)
		reading := suite.Must(t, writing.Downgrade)
		require.ErrorIs(t, writing.Err(), protocol.ErrReleased)
		require.Equal(t, writing.Token(), reading.Token())
		require.NoError(t, reading.Err())
		require.Equal(t, []protocol.EventKind{
			protocol.EventWaiting, protocol.EventAcquired, // the writer's
			protocol.EventWaiting, protocol.EventRetried, protocol.EventReleased, protocol.EventAcquired,
		}, slices.Compact(events.kinds(t)))
		suite.Unlock(t, reading)
	})
}

// kinds returns the kinds of the events. Each wait must have ended, with a token or with an error.
func (o observer) kinds(t *testing.T) (kinds []protocol.EventKind) {
	t.Helper()
	synctest.Wait()
	waiting := 0
	for len(o) > 0 {
		e := <-o
		kinds = append(kinds, e.Kind)
		switch e.Kind {
		case protocol.EventWaiting:
			waiting++
		case protocol.EventAcquired:
			waiting--
			require.NotEqual(t, e.Err == nil, e.Token == 0)
		}
	}
	require.Zero(t, waiting)
	return kinds
}

// If the caller leaves during the transaction, or its back-off ends, both nodes go. No hold is
// left, and none is lost.
func TestDowngradeThatIsGivenUpLeavesNothing(t *testing.T) {
	for want, fault := range map[error]func(*recipestest.Link){
		context.Canceled:      (*recipestest.Link).Stall,
		protocol.ErrThrottled: func(l *recipestest.Link) { l.Fail(recipestest.OpMulti, "", throttled, 1) },
	} {
		suite.Run(t, want.Error(), func(t *testing.T, srv *recipestest.Server) {
			path, link, events := srv.Root(t)+"/down", srv.Link(t), make(observer, 20)
			c := link.Client(t, protocol.WithObserver(events),
				protocol.WithBackOff(func() backoff.BackOff { return &backoff.StopBackOff{} }))
			writing := must(t, write, rwlock.New(c, path))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()

			fault(link)
			downgraded := suite.Later(func() error { _, err := writing.Downgrade(ctx); return err })
			synctest.Wait()
			cancel() // the back-off has ended before
			require.ErrorIs(t, suite.Wait(t, downgraded), want)
			link.Heal()
			require.ErrorIs(t, writing.Err(), protocol.ErrReleased)
			suite.Await(t, 0, rwlock.New(srv.Client(t), path).Contenders)

			time.Sleep(time.Minute)
			requests := link.Count(recipestest.OpAny)
			time.Sleep(10 * time.Minute)
			require.Equal(t, requests, link.Count(recipestest.OpAny), "proofs of a session that holds nothing")
			require.NotContains(t, events.kinds(t), protocol.EventLost)
		})
	}
}

// Of two calls the second waits for the first.
func TestDowngradeWaitsForAnother(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link := srv.Link(t)
		m := rwlock.New(link.Client(t), srv.Root(t)+"/down")
		writing := must(t, write, m)
		downgrade := func() <-chan *rwlock.Lease {
			return suite.Later(func() *rwlock.Lease { l, _ := writing.Downgrade(t.Context()); return l })
		}

		// The first fails, so the second makes the transaction.
		link.Fail(recipestest.OpMulti, "", badVersion, 1)
		link.Delay(20 * time.Millisecond)
		first := downgrade()
		synctest.Wait()
		second := downgrade()
		require.Nil(t, suite.Wait(t, first))
		reading := granted(t, second)
		require.ErrorIs(t, writing.Err(), protocol.ErrReleased)
		suite.Unlock(t, reading)
		suite.Await(t, 0, m.Contenders)
	})
}

// The servers' answer says for certain that the writer's node is gone, so nothing more is asked.
func TestDowngradeOfALeaseThatIsLostEndsItAtOnce(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link := srv.Root(t)+"/down", srv.Link(t)
		m, other := rwlock.New(link.Client(t), path), rwlock.New(srv.Client(t), path)
		writing := must(t, write, m)
		link.Fail(recipestest.OpExists, "", throttled, 20)
		link.Delay(20 * time.Millisecond)
		downgraded := suite.Later(func() error { _, err := writing.Downgrade(t.Context()); return err })
		require.NoError(t, other.Break(t.Context(), writing.Node()))

		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		require.ErrorIs(t, writing.Err(), protocol.ErrLost)
		require.ErrorIs(t, suite.Wait(t, downgraded), protocol.ErrNodeDeleted)
		suite.Await(t, 0, other.Contenders)
	})
}

// The servers refuse to delete anything for a while, so Unlock goes on. Downgrade doesn't wait for
// it longer than its ctx, and no loss is reported.
func TestDowngradeOvertakenByUnlockEndsWithItsCtx(t *testing.T) {
	t.Parallel()
	for op, fails := range map[recipestest.Op]int{recipestest.OpDelete: 20, recipestest.OpMulti: 1} {
		recipestest.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
			path, link, events := srv.Root(t)+"/down", srv.Link(t), make(observer, 100)
			m := rwlock.New(link.Client(t, protocol.WithObserver(events)), path)
			writing := must(t, write, m)
			link.Fail(op, "", throttled, fails)
			link.Delay(20 * time.Millisecond)

			ctx, cancel := context.WithCancel(t.Context())
			downgraded := suite.Later(func() error { _, err := writing.Downgrade(ctx); return err })
			synctest.Wait()
			unlocked := suite.Later(func() error { return writing.Unlock(t.Context()) })
			time.Sleep(time.Second)
			cancel()
			synctest.Wait()
			require.Len(t, downgraded, 1)
			require.ErrorIs(t, <-downgraded, protocol.ErrReleased)

			require.NoError(t, suite.Wait(t, unlocked))
			require.NotContains(t, events.kinds(t), protocol.EventLost)
			suite.Await(t, 0, rwlock.New(srv.Client(t), path).Contenders)
		})
	}
}

// The answers come together, so the transaction's can be noticed after those to the deletions.
func TestDowngradeOvertakenByUnlockLeavesTheAccountEmpty(t *testing.T) {
	recipestest.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link := srv.Link(t)
		c := link.Client(t)
		m := rwlock.New(c, srv.Root(t)+"/down")
		for range 1000 {
			writing := must(t, write, m)
			link.Cut()
			downgraded := suite.Later(func() error { _, err := writing.Downgrade(t.Context()); return err })
			time.AfterFunc(time.Millisecond, link.Heal)
			synctest.Wait()
			suite.Unlock(t, writing)
			require.ErrorIs(t, suite.Wait(t, downgraded), protocol.ErrReleased)
		}
		require.Zero(t, suite.Session(t, c).EphemeralBytes())
	})
}

// The write finds that the writer's node is gone, while Downgrade finds out whether that was its
// own transaction. The write needs that answer, but not for longer than its ctx.
func TestMultiDuringDowngradeEndsWithItsCtx(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link := srv.Root(t)+"/down", srv.Link(t)
		writing := must(t, write, rwlock.New(link.Client(t), path))
		link.LoseReply(recipestest.OpMulti, 1)
		link.Fail(recipestest.OpDelete, "", throttled, 20)
		downgraded := suite.Later(func() *rwlock.Lease { l, _ := writing.Downgrade(t.Context()); return l })
		time.Sleep(time.Second)

		ctx, cancel := context.WithCancel(t.Context())
		multi := func(ctx context.Context) <-chan error {
			return suite.Later(func() error {
				_, err := writing.Multi(ctx, &zk.CheckVersionRequest{Path: "/", Version: -1})
				return err
			})
		}
		short, long := multi(ctx), multi(t.Context())
		synctest.Wait()
		cancel()
		synctest.Wait()
		require.Len(t, short, 1)
		require.ErrorIs(t, <-short, context.Canceled)
		require.Empty(t, downgraded)

		reading := granted(t, downgraded)
		require.ErrorIs(t, suite.Wait(t, long), protocol.ErrReleased)
		suite.Unlock(t, reading)
	})
}

// The caller's context is code of the caller's. It doesn't say in time that it has ended, so it is
// noticed after the transaction.
func TestDowngradeThatIsGivenUpLateEndsTheWriterFirst(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link := srv.Root(t)+"/down", srv.Link(t)
		writing := must(t, write, rwlock.New(link.Client(t), path))
		other := rwlock.New(srv.Client(t), path)
		next := enter(t, write, other, other, 2)
		link.Delay(20 * time.Millisecond)

		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		downgraded := suite.Later(func() error { _, err := writing.Downgrade(lateContext{ctx}); return err })
		synctest.Wait()
		cancel()
		lease := granted(t, next)
		require.ErrorIs(t, writing.Err(), protocol.ErrReleased)
		require.ErrorIs(t, suite.Wait(t, downgraded), context.Canceled)
		suite.Unlock(t, lease)
	})
}

// A lateContext ends without closing its channel.
type lateContext struct{ context.Context }

func (lateContext) Done() <-chan struct{} { return nil }
