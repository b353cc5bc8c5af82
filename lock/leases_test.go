package lock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// locksAt returns locks below root.
func locksAt(c *protocol.Client, root string, names ...string) (locks []*lock.Mutex) {
	for _, name := range names {
		locks = append(locks, lock.New(c, root+"/"+name))
	}
	return locks
}

func TestLockAllHoldsAllAndGivesAllBack(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		ctx, link := suite.Lasting(t), srv.Link(t)
		locks := locksAt(link.Client(t), srv.Root(t), "b", "a", "c")
		all, err := lock.LockAll(ctx, locks...)
		require.NoError(t, err)
		for i, m := range locks {
			_, err := m.TryLock(ctx)
			require.ErrorIs(t, err, lock.ErrLocked)
			require.Equal(t, suite.Await(t, 1, m.Contenders)[0].Token, all.All()[i].Token(), "in the order of the arguments")
		}
		require.Less(t, all.All()[1].Token(), all.All()[0].Token(), "taken in the order of the paths")

		// The context that ends with the leases ends no wait for their deletion.
		held, cancel := all.Context(ctx)
		defer cancel()
		var none context.Context
		require.Error(t, all.Unlock(none))
		require.NoError(t, all.Err())
		require.NoError(t, held.Err())
		require.False(t, isClosed(all.Done()))
		link.Delay(10 * time.Millisecond)
		require.NoError(t, all.Unlock(held))
		require.NoError(t, all.Unlock(held))
		suite.Wait(t, all.Done())
		require.ErrorIs(t, all.Err(), protocol.ErrReleased)
		require.ErrorIs(t, context.Cause(held), protocol.ErrReleased)
		for _, m := range locks {
			suite.Await(t, 0, m.Contenders)
		}
		over, cancel := all.Context(ctx)
		defer cancel()
		require.ErrorIs(t, context.Cause(over), protocol.ErrReleased, "at once")
	})
}

// What was lost while another lock is waited for is taken again. What is lost after that is news.
func TestLockAllBeginsAgainAfterALoss(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		root, ctx := srv.Root(t), suite.Lasting(t)
		others := locksAt(srv.Client(t), root, "a", "b")
		blocker := suite.Must(t, others[1].Lock)
		var all *lock.Leases
		ended := suite.Later(func() (err error) {
			all, err = lock.LockAll(ctx, locksAt(srv.Client(t), root, "a", "b")...)
			return err
		})
		time.Sleep(time.Second)
		first := suite.Await(t, 1, others[0].Contenders)[0].Node
		require.NoError(t, others[0].Break(ctx, first))
		time.Sleep(time.Second)
		again := suite.Await(t, 1, others[0].Contenders)[0].Node
		require.NotEqual(t, first, again)
		suite.Await(t, 2, others[1].Contenders)
		suite.Unlock(t, blocker)
		require.NoError(t, suite.Wait(t, ended))

		held, cancel := all.Context(ctx)
		defer cancel()
		require.NoError(t, all.Err())
		require.NoError(t, others[0].Break(ctx, again))
		suite.Wait(t, all.Done())
		suite.Wait(t, held.Done())
		require.ErrorIs(t, context.Cause(held), protocol.ErrLost)
		require.ErrorContains(t, all.Err(), root+"/a")
		require.NoError(t, all.All()[1].Err(), "each lease is still its own")
		require.ErrorIs(t, all.Unlock(ctx), protocol.ErrLost)
		require.ErrorIs(t, all.Err(), protocol.ErrLost, "a loss is news, and giving back is not")
		suite.Await(t, 0, others[1].Contenders)
	})
}

// One of the locks is lost, and ctx ends while the others are given back.
func TestLockAllWhoseContextEndsAfterALossSaysSo(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		root, link := srv.Root(t), srv.Link(t)
		c, others := link.Client(t), locksAt(srv.Client(t), root, "a", "b", "c")
		node := func(i int) string { return suite.Await(t, 1, others[i].Contenders)[0].Node }
		blocker := suite.Must(t, others[2].Lock)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		ended := suite.Later(func() error {
			_, err := lock.LockAll(ctx, locksAt(c, root, "a", "b", "c")...)
			return err
		})
		synctest.Wait()
		time.Sleep(time.Second)

		const connectionLoss = -4
		link.Fail(recipestest.OpAny, root+"/b/"+node(1), connectionLoss, 1_000_000)
		require.NoError(t, others[0].Break(t.Context(), node(0)))
		require.ErrorIs(t, <-ended, context.DeadlineExceeded)
		suite.Unlock(t, blocker)
	})
}

func TestLockAllRefusesBadInputBeforeAnyIO(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link := srv.Link(t)
		c, other, closed := link.Client(t), link.Client(t), srv.Client(t)
		suite.Session(t, c)
		suite.Close(t, closed)
		before := link.Count(recipestest.OpAny)
		for name, locks := range map[string][]*lock.Mutex{
			"none":                      nil,
			"nil":                       {lock.New(c, "/a"), nil},
			"bad path":                  {lock.New(c, "/a"), lock.New(c, "b")},
			"twice":                     {lock.New(c, "/a"), lock.New(c, "/b"), lock.New(c, "/a")},
			"twice, of another session": {lock.New(c, "/a"), lock.New(other, "/a")},
			"too much data":             {lock.New(c, "/a"), lock.New(c, "/b", tooMuch)},
			"closed":                    {lock.New(c, "/a"), lock.New(closed, "/b")},
		} {
			_, err := lock.LockAll(t.Context(), locks...)
			require.Error(t, err, name)
			require.Equal(t, name == "closed", errors.Is(err, protocol.ErrClosed), name)
		}
		require.Equal(t, before, link.Count(recipestest.OpAny))
	})
}
