package lock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
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
		all := suite.Got(lock.LockAll(ctx, locks...))(t)
		for i, m := range locks {
			require.ErrorIs(t, suite.Err(m.TryLock(ctx)), lock.ErrLocked)
			require.Equal(t, suite.Await(t, 1, m.Contenders)[0].Token, all.All()[i].Token(), "in the order of the arguments")
		}
		require.Less(t, all.All()[1].Token(), all.All()[0].Token(), "taken in the order of the paths")

		// The context that ends with the leases ends no wait for their deletion.
		held, cancel := all.Context(ctx)
		defer cancel()
		link.Delay(10 * time.Millisecond)
		require.NoError(t, all.Unlock(held))
		require.NoError(t, all.Unlock(held))
		suite.Wait(t, all.Done())
		require.ErrorIs(t, all.Err(), protocol.ErrReleased)
		require.ErrorIs(t, context.Cause(held), protocol.ErrReleased)
		for _, m := range locks {
			suite.Await(t, 0, m.Contenders)
		}
	})
}

func TestLossOfOneLeaseEndsAll(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		root, ctx := srv.Root(t), suite.Lasting(t)
		others := locksAt(srv.Client(t), root, "a", "b")
		all := suite.Got(lock.LockAll(ctx, locksAt(srv.Client(t), root, "a", "b")...))(t)
		ended := suite.Later(func() struct{} { return <-all.Done() })
		var none context.Context
		require.Error(t, all.Unlock(none))
		synctest.Wait()
		require.Empty(t, ended, "nothing was given back")
		require.NoError(t, others[0].Break(ctx, all.All()[0].Node()))
		suite.Wait(t, ended)
		require.ErrorContains(t, all.Err(), root+"/a")
		require.NoError(t, all.All()[1].Err(), "each lease is still its own")
		require.ErrorIs(t, all.Unlock(ctx), protocol.ErrLost)
		require.ErrorIs(t, all.Err(), protocol.ErrLost, "a loss is news, and giving back is not")
		suite.Await(t, 0, others[0].Contenders)
	})
}

// One of the locks is lost, and ctx ends while the others are given back.
func TestLockAllWhoseContextEndsAfterALossSaysSo(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		root, link := srv.Root(t), srv.Link(t)
		c, others := link.Client(t), locksAt(srv.Client(t), root, "a", "b", "c")
		node := func(i int) string { return suite.Await(t, 1, others[i].Contenders)[0].Node }
		blocker := suite.Must(t, others[2].Lock)
		ctx := suite.Within(t, time.Minute)
		ended := suite.Later(func() error {
			_, err := lock.LockAll(ctx, locksAt(c, root, "a", "b", "c")...)
			return err
		})
		synctest.Wait()
		time.Sleep(time.Second)

		const connectionLoss = -4
		link.Fail(recipestest.OpAny, root+"/b/"+node(1), connectionLoss, 1_000_000)
		require.NoError(t, others[0].Break(t.Context(), node(0)))
		require.ErrorIs(t, suite.Wait(t, ended), context.DeadlineExceeded)
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
			"too much data":             {lock.New(c, "/a"), lock.New(c, "/b", lock.WithData(make([]byte, recipe.MaxData)))},
			"bad time":                  {lock.New(c, "/a", lock.WithLinger(0))},
			"bad limit":                 {lock.New(c, "/a", lock.WithLingerLimit(0))},
			"closed":                    {lock.New(c, "/a"), lock.New(closed, "/b")},
		} {
			_, err := lock.LockAll(t.Context(), locks...)
			require.Error(t, err, name)
			require.Equal(t, name == "closed", errors.Is(err, protocol.ErrClosed), name)
		}
		require.ErrorContains(t, suite.Err(lock.NewSimple(c, "/a", lock.WithLinger(1)).Lock(t.Context())), "linger")
		require.Equal(t, before, link.Count(recipestest.OpAny))
	})
}

// connected returns a client of the server that dial reaches. It is given another name for it.
func connected(t *testing.T, dial zk.Dialer, servers string) *protocol.Client {
	t.Helper()
	c := suite.Got(protocol.Connect(suite.Lasting(t), servers, protocol.WithDialer(dial)))(t)
	t.Cleanup(func() { suite.Close(t, c) })
	return c
}

// Locks of one path are taken in one order, however a process lists the servers. Two names of one
// ensemble are found out.
func TestLockAllOfOnePathOnTwoEnsembles(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		other, ctx := recipestest.Start(t, recipestest.WithInMemory()), suite.Lasting(t)
		at := func(srv *recipestest.Server, servers string) *lock.Mutex {
			return lock.New(connected(t, srv.Dial, servers), "/p")
		}
		first, second := at(srv, "a1:1,b2:1"), at(other, "b1:1")
		blocker := suite.Must(t, first.Lock)
		var wait suite.Group
		for _, locks := range [][]*lock.Mutex{{second, first}, {at(srv, "b2:1,a1:1"), second}} {
			wait.Go(func() error {
				all, err := lock.LockAll(ctx, locks...)
				if err != nil {
					return err
				}
				return all.Unlock(ctx)
			})
		}
		suite.Await(t, 3, first.Contenders)
		suite.Await(t, 0, second.Contenders)
		suite.Unlock(t, blocker)
		require.NoError(t, wait.Wait())

		_, err := lock.LockAll(ctx, first, second, at(srv, "c:1"))
		require.ErrorContains(t, err, "two locks have the path /p")
		suite.Await(t, 0, first.Contenders)
		suite.Await(t, 0, second.Contenders)
	})
}

// Two clients have locks of one path on two ensembles. One is lost while the second is waited for,
// or its ensemble is silent: the first lock with its node, or either with its session. What was
// lost is taken again.
func TestLockAllBeginsAgainAfterALoss(t *testing.T) {
	for name, test := range map[string]struct {
		lost           int
		broken, silent bool
	}{
		"first node":             {broken: true},
		"first session":          {},
		"first session, silent":  {silent: true},
		"second session":         {lost: 1},
		"second session, silent": {lost: 1, silent: true},
	} {
		suite.Run(t, name, func(t *testing.T, srv *recipestest.Server) {
			servers, ctx := []*recipestest.Server{srv, recipestest.Start(t, recipestest.WithInMemory())}, suite.Lasting(t)
			var links [2]*recipestest.Link
			var sessions [2]int64
			var locks, others [2]*lock.Mutex
			for i, s := range servers {
				links[i] = s.Link(t)
				c := connected(t, links[i].Dial, fmt.Sprint("server", i, ":1"))
				sessions[i] = suite.Session(t, c).ID()
				locks[i], others[i] = lock.New(c, "/p"), lock.New(s.Client(t), "/p")
			}
			blocker := suite.Must(t, others[1].Lock)
			if test.silent {
				links[1].Stall()
			}

			all := suite.Later(func() *lock.Leases { all, _ := lock.LockAll(ctx, locks[1], locks[0]); return all })
			time.Sleep(time.Second)
			before := suite.Await(t, 1, others[0].Contenders)[0]
			if test.broken {
				require.NoError(t, others[0].Break(ctx, before.Node))
			} else {
				servers[test.lost].ExpireSession(sessions[test.lost])
			}
			time.Sleep(3 * time.Second)
			again := suite.Await(t, 1, others[0].Contenders)[0]
			require.Equal(t, test.lost == 0, again.Token != before.Token)
			links[1].Heal()
			suite.Unlock(t, blocker)
			leases := suite.Wait(t, all)
			require.NoError(t, leases.Err())
			for _, m := range others {
				suite.Await(t, 1, m.Contenders)
			}
			require.NoError(t, leases.Unlock(ctx))
		})
	}
}
