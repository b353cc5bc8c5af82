package lock_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

func TestLockAllHoldsAllAndGivesAllBack(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		c, root, ctx := srv.Client(t), srv.Root(t), suite.Lasting(t)
		paths := []string{root + "/b", root + "/a", root + "/c"}
		var locks []*lock.Mutex
		for _, path := range paths {
			locks = append(locks, lock.New(c, path))
		}

		all, err := lock.LockAll(ctx, locks...)
		require.NoError(t, err)
		for i, m := range locks {
			_, err := m.TryLock(ctx)
			require.ErrorIs(t, err, lock.ErrLocked)
			line, err := m.Contenders(ctx)
			require.NoError(t, err)
			require.Equal(t, line[0].Token, all.All()[i].Token(), "in the order of the arguments")
		}
		require.Less(t, all.All()[1].Token(), all.All()[0].Token(), "taken in the order of the paths")

		held, cancel := all.Context(ctx)
		defer cancel()
		require.NoError(t, held.Err())
		require.NoError(t, all.Err())
		require.NoError(t, all.Unlock(ctx))
		require.NoError(t, all.Unlock(ctx))
		suite.Wait(t, all.Done())
		require.ErrorIs(t, all.Err(), protocol.ErrReleased)
		require.Error(t, held.Err())
		require.ErrorIs(t, context.Cause(held), protocol.ErrReleased)
		for _, m := range locks {
			l, err := m.TryLock(ctx)
			require.NoError(t, err)
			require.NoError(t, l.Unlock(ctx))
		}
	})
}

func TestLockAllNeverWaitsInACircle(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		root, ctx := srv.Root(t), suite.Lasting(t)
		var wait suite.Group
		for i := range 4 {
			c := srv.Client(t)
			wait.Go(func() error {
				locks := []*lock.Mutex{lock.New(c, root+"/a"), lock.New(c, root+"/b"), lock.New(c, root+"/c")}
				if i%2 == 1 {
					slices.Reverse(locks)
				}
				for range 3 {
					all, err := lock.LockAll(ctx, locks...)
					if err != nil {
						return err
					}
					if err := all.Unlock(ctx); err != nil {
						return err
					}
				}
				return nil
			})
		}
		require.NoError(t, wait.Wait())
	})
}

func TestLockAllIsLostWithOneOfThem(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		c, root, ctx := srv.Client(t), srv.Root(t), suite.Lasting(t)
		a, b := lock.New(c, root+"/a"), lock.New(c, root+"/b")
		all, err := lock.LockAll(ctx, a, b)
		require.NoError(t, err)
		held, cancel := all.Context(ctx)
		defer cancel()

		require.NoError(t, a.Break(ctx, all.All()[0].Node()))
		suite.Wait(t, all.Done())
		suite.Wait(t, held.Done())
		require.ErrorIs(t, context.Cause(held), protocol.ErrLost)
		require.ErrorIs(t, all.Err(), protocol.ErrLost)
		require.ErrorContains(t, all.Err(), root+"/a")
		require.NoError(t, all.All()[1].Err(), "each lease is still its own")

		require.ErrorIs(t, all.Unlock(ctx), protocol.ErrLost)
		require.ErrorIs(t, all.Err(), protocol.ErrLost, "a loss is news, and giving back is not")
		l, err := b.TryLock(ctx)
		require.NoError(t, err)
		require.NoError(t, l.Unlock(ctx))
	})
}

func TestLockAllGivesBackWhatItHasWhenItsContextEnds(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		c, other, root, ctx := srv.Client(t), srv.Client(t), srv.Root(t), suite.Lasting(t)
		blocker, err := lock.New(other, root+"/b").Lock(ctx)
		require.NoError(t, err)

		short, cancel := context.WithCancel(ctx)
		ended := suite.Later(func() error {
			_, err := lock.LockAll(short, lock.New(c, root+"/a"), lock.New(c, root+"/b"))
			return err
		})
		suite.Soon(t, func() bool {
			line, err := lock.New(other, root+"/b").Contenders(ctx)
			return err == nil && len(line) == 2
		}, "a waiter")
		cancel()
		require.ErrorIs(t, suite.Wait(t, ended), context.Canceled)

		l, err := lock.New(other, root+"/a").Lock(ctx)
		require.NoError(t, err)
		require.NoError(t, l.Unlock(ctx))
		require.NoError(t, blocker.Unlock(ctx))
	})
}

// What was lost while another lock is waited for is taken again.
func TestLockAllBeginsAgainAfterALoss(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		c, other, root, ctx := srv.Client(t), srv.Client(t), srv.Root(t), suite.Lasting(t)
		blocker, err := lock.New(other, root+"/b").Lock(ctx)
		require.NoError(t, err)

		type result struct {
			all *lock.Leases
			err error
		}
		done := suite.Later(func() result {
			all, err := lock.LockAll(ctx, lock.New(c, root+"/a"), lock.New(c, root+"/b"))
			return result{all, err}
		})
		waits := func() bool {
			line, err := lock.New(other, root+"/b").Contenders(ctx)
			return err == nil && len(line) == 2
		}
		suite.Soon(t, waits, "a waiter")
		a := lock.New(other, root+"/a")
		line, err := a.Contenders(ctx)
		require.NoError(t, err)
		require.NoError(t, a.Break(ctx, line[0].Node))
		suite.Soon(t, func() bool {
			again, err := a.Contenders(ctx)
			return err == nil && len(again) == 1 && again[0].Node != line[0].Node && waits()
		}, "a new beginning")

		require.NoError(t, blocker.Unlock(ctx))
		got := suite.Wait(t, done)
		require.NoError(t, got.err)
		require.NoError(t, got.all.Err())
		require.NoError(t, got.all.Unlock(ctx))
	})
}

// One of the locks is lost, and ctx ends while the others are given back.
func TestLockAllWhoseContextEndsAfterALossSaysSo(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		other, root, link := srv.Client(t), srv.Root(t), srv.Link(t)
		c := link.Client(t)
		at := func(name string) *lock.Mutex { return lock.New(other, root+name) }
		node := func(name string) string {
			line, err := at(name).Contenders(t.Context())
			require.NoError(t, err)
			require.Len(t, line, 1)
			return line[0].Node
		}
		blocker := suite.Must(t, at("/c").Lock)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		ended := suite.Later(func() error {
			_, err := lock.LockAll(ctx, lock.New(c, root+"/a"), lock.New(c, root+"/b"), lock.New(c, root+"/c"))
			return err
		})
		synctest.Wait()
		time.Sleep(time.Second)

		const connectionLoss = -4
		link.Fail(recipestest.OpAny, root+"/b/"+node("/b"), connectionLoss, 1_000_000)
		require.NoError(t, at("/a").Break(t.Context(), node("/a")))
		require.ErrorIs(t, <-ended, context.DeadlineExceeded)
		require.NoError(t, blocker.Unlock(t.Context()))
	})
}

// A context of the leases ends when they are given back under it. That is no reason to stop
// waiting.
func TestLeasesAreGivenBackUnderTheirOwnContext(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		root, ctx, link := srv.Root(t), suite.Lasting(t), srv.Link(t)
		c := link.Client(t)
		all, err := lock.LockAll(ctx, lock.New(c, root+"/a"), lock.New(c, root+"/b"), lock.New(c, root+"/c"))
		require.NoError(t, err)
		held, cancel := all.Context(ctx)
		defer cancel()
		link.Delay(10 * time.Millisecond)
		require.NoError(t, all.Unlock(held))
		require.NoError(t, all.Unlock(held))
		require.ErrorIs(t, context.Cause(held), protocol.ErrReleased)
		for _, name := range []string{"/a", "/b", "/c"} {
			line, err := lock.New(c, root+name).Contenders(ctx)
			require.NoError(t, err)
			require.Empty(t, line)
		}
	})
}

func TestLeasesAreHeldThoughUnlockHasNoContext(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		c, root, ctx := srv.Client(t), srv.Root(t), suite.Lasting(t)
		all, err := lock.LockAll(ctx, lock.New(c, root+"/a"), lock.New(c, root+"/b"))
		require.NoError(t, err)
		var none context.Context
		require.Error(t, all.Unlock(none))
		require.NoError(t, all.Err())
		select {
		case <-all.Done():
			require.Fail(t, "done, though both are held")
		default:
		}
		require.NoError(t, all.Unlock(ctx))
		suite.Wait(t, all.Done())
	})
}

func TestLockAllRefusesBadInputBeforeAnyIO(t *testing.T) {
	t.Parallel()
	srv := recipestest.Start(t)
	link := srv.Link(t)
	c, other := link.Client(t), link.Client(t)
	before := link.Packets()
	for name, locks := range map[string][]*lock.Mutex{
		"none":                      nil,
		"nil":                       {lock.New(c, "/a"), nil},
		"bad path":                  {lock.New(c, "/a"), lock.New(c, "b")},
		"nil client":                {lock.New(nil, "/a")},
		"twice":                     {lock.New(c, "/a"), lock.New(c, "/b"), lock.New(c, "/a")},
		"twice, of another session": {lock.New(c, "/a"), lock.New(other, "/a")},
		"too much data":             {lock.New(c, "/a"), lock.New(c, "/b", tooMuch)},
	} {
		_, err := lock.LockAll(t.Context(), locks...)
		require.Error(t, err, name)
	}
	require.Equal(t, before, link.Packets())
}

func TestLockAllOfAClosedClientTakesNone(t *testing.T) {
	t.Parallel()
	srv := recipestest.Start(t)
	link := srv.Link(t)
	c, closed := link.Client(t), srv.Client(t)
	suite.Session(t, c)
	suite.Close(t, closed)
	before := link.Packets()
	_, err := lock.LockAll(t.Context(), lock.New(c, "/a"), lock.New(closed, "/b"))
	require.ErrorIs(t, err, protocol.ErrClosed)
	require.Equal(t, before, link.Packets())
}

func TestWaitForALockOfOnesOwnSaysSo(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		c, other, path, ctx := srv.Client(t), srv.Client(t), srv.Root(t)+"/own", suite.Lasting(t)
		l, err := lock.New(c, path).Lock(ctx)
		require.NoError(t, err)
		elsewhere, err := lock.New(c, path+"-2").Lock(ctx)
		require.NoError(t, err)

		short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		defer cancel()
		_, err = lock.New(c, path).Lock(short)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "held by this client since 20")
		_, err = lock.New(other, path).Lock(short)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotContains(t, err.Error(), "held by this client")
		require.NoError(t, l.Unlock(ctx))

		_, err = lock.New(c, path).Lock(short)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotContains(t, err.Error(), "held by this client", "though it holds another one")
		require.NoError(t, elsewhere.Unlock(ctx))
	})
}

func TestRevokeAsksTheHolder(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		c, other, path, ctx := srv.Client(t), srv.Client(t), srv.Root(t)+"/revoked", suite.Lasting(t)
		operator := lock.New(other, path)
		first, err := lock.New(c, path, lock.WithData([]byte("first"))).Lock(ctx)
		require.NoError(t, err)
		revoked := first.Revoked()
		require.Equal(t, revoked, first.Revoked())

		waiting := suite.Later(func() *lock.Lease {
			l, err := lock.New(c, path).Lock(ctx)
			require.NoError(t, err)
			return l
		})
		var line []lock.Contender
		suite.Soon(t, func() bool {
			line, err = operator.Contenders(ctx)
			return err == nil && len(line) == 2
		}, "a waiter")

		require.NoError(t, operator.Revoke(ctx, line[1].Node), "a waiter may be asked, too")
		select {
		case <-revoked:
			require.Fail(t, "the holder was not asked yet")
		default:
		}
		require.NoError(t, operator.Revoke(ctx, line[0].Node))
		suite.Wait(t, revoked)
		require.NoError(t, first.Err(), "it is held until it is given back")
		require.NoError(t, first.Unlock(ctx))

		second := suite.Wait(t, waiting)
		suite.Wait(t, second.Revoked())
		require.NoError(t, second.Unlock(ctx))

		third, err := lock.New(c, path).Lock(ctx)
		require.NoError(t, err)
		revoked = third.Revoked()
		require.NoError(t, third.Unlock(ctx))
		select {
		case <-revoked:
			require.Fail(t, "no one has asked for it")
		default:
		}

		require.ErrorIs(t, operator.Revoke(ctx, line[0].Node), zk.ErrNoNode)
		require.ErrorIs(t, operator.Revoke(ctx, "config"), zk.ErrInvalidPath)
	})
}

// A change of data may be missed while there is no connection.
func TestRevocationDuringABlipIsHeardOf(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		link, other, path, ctx := srv.Link(t), srv.Client(t), srv.Root(t)+"/revoked", suite.Lasting(t)
		c := link.Client(t)
		l, err := lock.NewSimple(c, path).Lock(ctx)
		require.NoError(t, err)
		reads := link.Count(recipestest.OpGetData)
		revoked := l.Revoked()
		suite.Wait(t, link.Answered(recipestest.OpGetData, reads+1))

		link.Cut()
		require.NoError(t, lock.NewSimple(other, path).Revoke(ctx, l.Node()))
		link.Heal()
		suite.Wait(t, revoked)
		require.NoError(t, l.Unlock(ctx))
	})
}

// The connection breaks again while the holder asks the server what it has missed, and the view's
// back-off ends. No caller would be told that the holder listens no more.
func TestRevocationIsHeardOfThoughABackOffHasEnded(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link, path, ctx := srv.Link(t), srv.Root(t)+"/revoked", suite.Lasting(t)
		c := link.Client(t, protocol.WithBackOff(func() backoff.BackOff { return &backoff.StopBackOff{} }))
		l, err := lock.New(c, path).Lock(ctx)
		require.NoError(t, err)
		revoked := l.Revoked()
		synctest.Wait()

		link.LoseReply(recipestest.OpExists, 1)
		link.Cut()
		link.Heal()
		time.Sleep(time.Second)
		require.NoError(t, lock.New(srv.Client(t), path).Revoke(ctx, l.Node()))
		suite.Wait(t, revoked)
		require.NoError(t, l.Unlock(ctx))
	})
}

// A lease may have ended while its node is still there, which another client can revoke then.
func TestRevocationOfALeaseThatHasEndedIsNotHeardOf(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link := srv.Root(t)+"/revoked", srv.Link(t)
		l := suite.Must(t, lock.New(link.Client(t), path).Lock)
		revoked := l.Revoked()
		time.Sleep(time.Second)

		const connectionLoss = -4
		link.Fail(recipestest.OpAny, path+"/"+l.Node(), connectionLoss, 1_000_000)
		unlocked := suite.Later(func() error { return l.Unlock(t.Context()) })
		synctest.Wait()
		require.ErrorIs(t, l.Err(), protocol.ErrReleased)
		link.Fail(recipestest.OpAny, path+"/"+l.Node(), connectionLoss, 0)
		require.NoError(t, lock.New(srv.Client(t), path).Revoke(t.Context(), l.Node()))
		require.NoError(t, <-unlocked)
		synctest.Wait()
		select {
		case <-revoked:
			require.Fail(t, "revoked after its end")
		default:
		}
	})
}

func TestContextOfLeasesCanBeCancelled(t *testing.T) {
	srv := recipestest.Start(t)
	all, err := lock.LockAll(t.Context(), lock.New(srv.Client(t), srv.Root(t)+"/a"))
	require.NoError(t, err)
	ctx, cancel := all.Context(t.Context())
	cancel()
	require.ErrorIs(t, ctx.Err(), context.Canceled)
	require.NoError(t, all.Unlock(t.Context()))
}

func TestContextOfLeasesThatAreOverIsCancelledAtOnce(t *testing.T) {
	srv := recipestest.Start(t)
	all, err := lock.LockAll(t.Context(), lock.New(srv.Client(t), srv.Root(t)+"/a"))
	require.NoError(t, err)
	require.NoError(t, all.Unlock(t.Context()))
	for range 100 {
		ctx, cancel := all.Context(t.Context())
		select {
		case <-ctx.Done():
		default:
			require.Fail(t, "it is not cancelled yet")
		}
		cancel()
	}
}
