package recipe_test

import (
	"context"
	"fmt"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// A watch on a missing node doesn't take the same answer for a change.
func TestWatchOnAMissingNodeIsCurrentAfterAReconnect(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link, path := srv.Link(t), srv.Root(t)+"/node"
		c := link.Client(t)
		s := suite.Session(t, c)
		require.ErrorIs(t, suite.Err(s.Watch(path).Ready(suite.Lasting(t))), zk.ErrNoNode)
		watch := s.WatchChildren(path)
		stat := suite.Must(t, watch.Ready)
		require.Nil(t, stat)

		suite.Reconnect(t, link, c)
		same := suite.Must(t, watch.Current)
		require.True(t, same)
		suite.Ensure(t, s, path)
		suite.Wait(t, watch.Changed())
	})
}

// Recheck finds a change whose event has not come.
func TestRecheckFindsEveryChange(t *testing.T) {
	suite.EmbeddedAndReal(t, func(t *testing.T, srv *recipestest.Server) {
		root, watching, other := srv.Root(t), suite.Session(t, srv.Client(t)), suite.Session(t, srv.Client(t))

		remove := func(path string) error { return other.Delete(suite.Lasting(t), path, -1) }
		again := func(path string) error {
			_, err := other.Multi(suite.Lasting(t), &zk.DeleteRequest{Path: path, Version: -1}, &zk.CreateRequest{Path: path})
			return err
		}
		for name, change := range map[string]struct {
			watch func(string) *recipe.Watch
			do    func(path string) error
		}{
			"data": {watching.Watch, func(path string) error {
				_, err := other.Set(suite.Lasting(t), path, []byte("new"), -1)
				return err
			}},
			"deletion":     {watching.Watch, remove},
			"another node": {watching.Watch, again},
			"child": {watching.WatchChildren, func(path string) error {
				return other.Create(suite.Lasting(t), path+"/child", nil, 0)
			}},
			"child that comes and goes": {watching.WatchChildren, func(path string) error {
				_, err := other.Multi(suite.Lasting(t),
					&zk.CreateRequest{Path: path + "/child"}, &zk.DeleteRequest{Path: path + "/child", Version: -1})
				return err
			}},
			"parent's end":   {watching.WatchChildren, remove},
			"another parent": {watching.WatchChildren, again},
		} {
			path := root + "/" + name
			suite.Ensure(t, other, path)
			require.NoError(t, watching.Sync(suite.Lasting(t), path))
			watch := change.watch(path)
			require.NoError(t, suite.Err(watch.Ready(suite.Lasting(t))), name)
			same, err := watch.Recheck(suite.Lasting(t))
			require.NoError(t, err, name)
			require.True(t, same, name)
			require.NoError(t, change.do(path), name)
			require.NoError(t, watching.Sync(suite.Lasting(t), path))

			same, err = watch.Recheck(suite.Lasting(t))

			require.NoError(t, err, name)
			require.False(t, same, name)
		}
	})
}

// After a reconnect, a read from before it is not current until the server confirms it. A change
// that one of them finds must reach all who share the watch: perhaps its event never comes.
func TestChangeIsFoundBeforeWatchesAreSetAgain(t *testing.T) {
	for name, find := range map[string]func(*recipe.Watch, context.Context) (bool, error){
		"Recheck": (*recipe.Watch).Recheck, "Current": (*recipe.Watch).Current,
		"Fresh": func(w *recipe.Watch, ctx context.Context) (bool, error) {
			old, _ := w.Ready(ctx)
			stat, err := w.Fresh(ctx)
			return stat.Czxid == old.Czxid, err
		},
	} {
		suite.Run(t, name, func(t *testing.T, srv *recipestest.Server) {
			link, path, other := srv.Link(t), srv.Root(t)+"/node", suite.Session(t, srv.Client(t))
			gate := &suite.Gate{Op: recipestest.OpSetWatches}
			s := suite.Session(t, link.Client(t, gate.Option(link)))
			suite.Ensure(t, s, path)
			watch, sharer := s.Watch(path), s.Watch(path)
			for _, w := range []*recipe.Watch{watch, sharer} {
				suite.Must(t, w.Ready)
			}

			gate.Shut()
			link.Cut()
			suite.Got(other.Multi(suite.Lasting(t), &zk.DeleteRequest{Path: path, Version: -1}, &zk.CreateRequest{Path: path}))(t)
			link.Heal()
			require.NoError(t, s.Sync(suite.Lasting(t), path))
			synctest.Wait()
			select {
			case <-sharer.Changed():
				require.Fail(t, "the server cannot have told of it")
			default:
			}

			same := suite.Got(find(watch, suite.Lasting(t)))(t)
			require.False(t, same)
			suite.Wait(t, sharer.Changed())
			gate.Open()
		})
	}
}

// After a reconnect a watch asks the server once, whatever is called in which order.
func TestWatchAsksOnceAfterAReconnect(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link, path := srv.Link(t), srv.Root(t)+"/node"
		c := link.Client(t)
		s := suite.Session(t, c)
		suite.Ensure(t, s, path)
		first := s.Watch(path)
		suite.Must(t, first.Ready)
		suite.Reconnect(t, link, c)
		synctest.Wait()
		asked := link.Count(recipestest.OpExists)

		second := s.Watch(path)
		same := suite.Must(t, second.Current)
		require.True(t, same)
		suite.Must(t, second.Ready)
		require.ErrorIs(t, second.Wait(suite.Within(t, time.Second)), context.DeadlineExceeded)

		require.Equal(t, asked+1, link.Count(recipestest.OpExists))
	})
}

// While the answers to a recheck are lost, the waiter asks once a connection. If each reconnect
// left another request to repeat, a server with too much to do would get more of it each time.
func TestLostRechecksDontAddUp(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link, path := srv.Link(t), srv.Root(t)+"/node"
		c := link.Client(t)
		s := suite.Session(t, c)
		suite.Ensure(t, s, path)
		waiting := suite.Later(func() error {
			_, err := s.WaitNode(suite.Lasting(t), path, func(stat *zk.Stat) bool { return stat.Version > 0 })
			return err
		})
		synctest.Wait()

		const lost = 10
		asked := link.Count(recipestest.OpExists)
		link.LoseReply(recipestest.OpExists, lost)
		suite.Reconnect(t, link, c)
		time.Sleep(30 * time.Second)
		require.LessOrEqual(t, link.Count(recipestest.OpExists)-asked, 2*lost)

		suite.Got(s.Set(suite.Lasting(t), path, nil, -1))(t)
		require.NoError(t, suite.Wait(t, waiting))
	})
}

// A caller that has joined a read that found no node reads once more, be it with others, and no
// more than once.
func TestWatchThatJoinsReadsOfAnAbsentNodeAsksTwice(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link, path := srv.Link(t), srv.Root(t)+"/absent"
		s := suite.Session(t, link.Client(t))
		before := link.Count(recipestest.OpGetData)
		link.Delay(time.Millisecond)
		first, joins := s.Watch(path), s.Watch(path)
		require.ErrorIs(t, suite.Err(first.Ready(suite.Lasting(t))), zk.ErrNoNode)

		s.Watch(path) // begins the second read
		late := suite.Later(func() error {
			_, err := joins.Ready(suite.Lasting(t))
			return err
		})

		synctest.Wait() // until it has joined that, too
		require.ErrorIs(t, suite.Wait(t, late), zk.ErrNoNode)
		require.Equal(t, 2, link.Count(recipestest.OpGetData)-before)
	})
}

// A caller that knows of a node can share a read that found no node. Answers
// that come together are seen in any order: on one processor the last one is seen first.
func TestWatchSharesNoOldAbsence(t *testing.T) {
	suite.EmbeddedAndReal(t, func(t *testing.T, srv *recipestest.Server) {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
		root, other := srv.Root(t), suite.Session(t, srv.Client(t))

		for i := range 20 {
			link, path := srv.Link(t), fmt.Sprint(root, "/", i)
			var held atomic.Bool
			delivered := make(chan struct{}) // at once, what comes while it is held
			deliver := sync.OnceFunc(func() { close(delivered) })
			s := suite.Session(t, link.Client(t, suite.Over(link.Dial, func(conn net.Conn) suite.Wire {
				return suite.Wire{Conn: conn, OnRead: func(p []byte) (int, error) {
					n, err := conn.Read(p)
					if held.Load() {
						<-delivered
					}
					return n, err
				}}
			})))
			read, synced := link.Answered(recipestest.OpGetData, 1), link.Answered(recipestest.OpSync, 1)
			held.Store(true)
			t.Cleanup(deliver)
			early := s.Watch(path)
			suite.Wait(t, read)
			suite.Ensure(t, other, path)
			late := make(chan error)
			go func() {
				err := s.Sync(suite.Lasting(t), path)
				if err == nil {
					_, err = s.Watch(path).Ready(suite.Lasting(t))
				}
				late <- err
			}()
			suite.Wait(t, synced)
			deliver()

			require.NoError(t, suite.Wait(t, late), "the node was there before the call")
			require.ErrorIs(t, suite.Err(early.Ready(suite.Lasting(t))), zk.ErrNoNode)
		}
	})
}

// Waiters of one session on one node share a watch. A blip, and a minute at rest, cost one request.
func TestWaitersOnOneNodeAskOnce(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		const n = 1000
		link, root := srv.Link(t), srv.Root(t)
		s := suite.Session(t, link.Client(t))
		suite.Ensure(t, s, root+"/x")
		done := make(chan error, n)

		for range n {
			go func() {
				_, err := s.WaitNode(t.Context(), root+"/x", func(*zk.Stat) bool { return false })
				done <- err
			}()
		}

		time.Sleep(time.Second)
		asked := func() int { synctest.Wait(); return link.Count(recipestest.OpExists) }
		before := asked()
		suite.Blip(link)
		time.Sleep(5 * time.Second)
		require.Equal(t, before+1, asked())
		time.Sleep(10 * time.Minute)
		require.LessOrEqual(t, asked(), before+12)
		require.Greater(t, asked(), before+9)
		require.NoError(t, suite.Session(t, srv.Client(t)).Delete(suite.Lasting(t), root+"/x", -1))

		for range n {
			require.NoError(t, suite.Wait(t, done))
		}
	})
}
