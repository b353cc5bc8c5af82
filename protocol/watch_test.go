package protocol_test

import (
	"context"
	"fmt"
	"net"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// Of several watches one may fire before the wait for them begins.
func TestWaitAnyReturnsForAWatchThatHasFired(t *testing.T) {
	each(t, func(t *testing.T, srv *recipestest.Server) {
		s, root := session(t, srv.Client(t)), srv.Root(t)
		for fired := range 3 {
			var watches []*recipe.Watch
			for i := range 3 {
				path := fmt.Sprintf("%s/%d/%d", root, fired, i)
				_, err := s.EnsurePath(lasting(t), path)
				require.NoError(t, err)
				watches = append(watches, s.Watch(path))
				_, err = watches[i].Ready(lasting(t))
				require.NoError(t, err)
			}
			require.NoError(t, s.Delete(lasting(t), fmt.Sprintf("%s/%d/%d", root, fired, fired), -1))
			wait(t, watches[fired].Changed())

			require.NoError(t, s.WaitAny(lasting(t), watches...))
		}
	})
}

// A watch on what is missing knows that: it does not take the same answer for a change.
func TestWatchOnAMissingNodeIsCurrentAfterAReconnect(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link, path := srv.Link(t), srv.Root(t)+"/node"
		c := link.Client(t)
		s := session(t, c)
		_, err := s.Watch(path).Ready(lasting(t))
		require.ErrorIs(t, err, zk.ErrNoNode)
		watch := s.WatchChildren(path)
		stat, err := watch.Ready(lasting(t))
		require.NoError(t, err)
		require.Nil(t, stat)

		resume(t, link, c)
		same, err := watch.Current(lasting(t))
		require.NoError(t, err)
		require.True(t, same)
		_, err = s.EnsurePath(lasting(t), path)
		require.NoError(t, err)
		wait(t, watch.Changed())
	})
}

// Recheck finds what the server has not told of, or not yet.
func TestRecheckFindsEveryChange(t *testing.T) {
	each(t, func(t *testing.T, srv *recipestest.Server) {
		root, watching, other := srv.Root(t), session(t, srv.Client(t)), session(t, srv.Client(t))
		for name, change := range map[string]struct {
			children bool
			do       func(path string) error
		}{
			"data": {false, func(path string) error {
				_, err := other.Set(lasting(t), path, []byte("new"), -1)
				return err
			}},
			"deletion": {false, func(path string) error { return other.Delete(lasting(t), path, -1) }},
			"another node": {false, func(path string) error {
				_, err := other.Multi(lasting(t),
					&zk.DeleteRequest{Path: path, Version: -1}, &zk.CreateRequest{Path: path})
				return err
			}},
			"child": {true, func(path string) error { return other.Create(lasting(t), path+"/child", nil, 0) }},
			"child that comes and goes": {true, func(path string) error {
				_, err := other.Multi(lasting(t),
					&zk.CreateRequest{Path: path + "/child"}, &zk.DeleteRequest{Path: path + "/child", Version: -1})
				return err
			}},
			"parent's end": {true, func(path string) error { return other.Delete(lasting(t), path, -1) }},
			"another parent": {true, func(path string) error {
				_, err := other.Multi(lasting(t),
					&zk.DeleteRequest{Path: path, Version: -1}, &zk.CreateRequest{Path: path})
				return err
			}},
		} {
			path := root + "/" + name
			_, err := other.EnsurePath(lasting(t), path)
			require.NoError(t, err)
			require.NoError(t, watching.Sync(lasting(t), path))
			watch := watching.Watch(path)
			if change.children {
				watch = watching.WatchChildren(path)
			}
			_, err = watch.Ready(lasting(t))
			require.NoError(t, err, name)
			same, err := watch.Recheck(lasting(t))
			require.NoError(t, err, name)
			require.True(t, same, name)
			require.NoError(t, change.do(path), name)
			require.NoError(t, watching.Sync(lasting(t), path))

			same, err = watch.Recheck(lasting(t))

			require.NoError(t, err, name)
			require.False(t, same, name)
		}
	})
}

// What Recheck finds must reach all who share the watch: the server may never tell of it.
func TestRecheckTellsAllWhoShareTheWatch(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link, path, other := srv.Link(t), srv.Root(t)+"/node", session(t, srv.Client(t))
		gate := &suite.Gate{Op: recipestest.OpSetWatches}
		s := session(t, link.Client(t, gate.Option(link)))
		_, err := s.EnsurePath(lasting(t), path)
		require.NoError(t, err)
		watch, sharer := s.Watch(path), s.Watch(path)
		for _, w := range []*recipe.Watch{watch, sharer} {
			_, err := w.Ready(lasting(t))
			require.NoError(t, err)
		}
		gate.Shut()
		link.Cut()
		_, err = other.Set(lasting(t), path, []byte("new"), -1)
		require.NoError(t, err)
		link.Heal()
		require.NoError(t, s.Sync(lasting(t), path))
		synctest.Wait()
		select {
		case <-sharer.Changed():
			require.Fail(t, "the server cannot have told of it")
		default:
		}

		same, err := watch.Recheck(lasting(t))

		require.NoError(t, err)
		require.False(t, same)
		wait(t, sharer.Changed())
		gate.Open()
	})
}

// What was read before a reconnect counts for nothing until the server has said so again.
func TestWatchIsNotTrustedAfterAReconnect(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link, root, other := srv.Link(t), srv.Root(t), session(t, srv.Client(t))
		gate := &suite.Gate{Op: recipestest.OpSetWatches}
		s := session(t, link.Client(t, gate.Option(link)))
		path := root + "/node"
		_, err := s.EnsurePath(lasting(t), path)
		require.NoError(t, err)
		watch := s.Watch(path)
		_, err = watch.Ready(lasting(t))
		require.NoError(t, err)
		gate.Shut()
		link.Cut()
		_, err = other.Multi(lasting(t), &zk.DeleteRequest{Path: path, Version: -1}, &zk.CreateRequest{Path: path})
		require.NoError(t, err)
		link.Heal()
		require.NoError(t, s.Sync(lasting(t), root))

		current, err := watch.Current(lasting(t))
		require.NoError(t, err)
		require.False(t, current)
		gate.Open()
	})
}

// After a reconnect a watch asks the server once, whatever is called in which order.
func TestWatchAsksOnceAfterAReconnect(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link, path := srv.Link(t), srv.Root(t)+"/node"
		c := link.Client(t)
		s := session(t, c)
		_, err := s.EnsurePath(lasting(t), path)
		require.NoError(t, err)
		first := s.Watch(path)
		_, err = first.Ready(lasting(t))
		require.NoError(t, err)
		resume(t, link, c)
		synctest.Wait()
		asked := link.Count(recipestest.OpExists)

		second := s.Watch(path)
		same, err := second.Current(lasting(t))
		require.NoError(t, err)
		require.True(t, same)
		_, err = second.Ready(lasting(t))
		require.NoError(t, err)
		require.ErrorIs(t, second.Wait(within(t, time.Second)), context.DeadlineExceeded)

		require.Equal(t, asked+1, link.Count(recipestest.OpExists))
	})
}

// Should an event never come, the wait ends all the same.
func TestWaitAsksAgainOnceAMinute(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link := srv.Link(t)
		s, path := session(t, link.Client(t)), srv.Root(t)+"/x"
		_, err := s.EnsurePath(t.Context(), path)
		require.NoError(t, err)
		for _, waits := range []func(context.Context) error{
			func(ctx context.Context) error {
				_, err := s.WaitNode(ctx, path, func(*zk.Stat) bool { return false })
				return err
			},
			func(ctx context.Context) error {
				return s.WaitChildren(ctx, path, func([]string) bool { return false })
			},
		} {
			before := link.Count(recipestest.OpExists)
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute+time.Second)
			require.ErrorIs(t, waits(ctx), context.DeadlineExceeded)
			cancel()
			require.Equal(t, before+3, link.Count(recipestest.OpExists))
		}
	})
}

// heldConn delivers nothing that comes while mu is locked, and then all at once.
type heldConn struct {
	net.Conn
	mu *sync.RWMutex
}

func (c heldConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.mu.RLock()
	defer c.mu.RUnlock()
	return n, err
}

// A caller that has joined a read that found no node reads once more, be it with others, and no
// more than once.
func TestWatchThatJoinsReadsOfAnAbsentNodeAsksTwice(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link, path := srv.Link(t), srv.Root(t)+"/absent"
		s := session(t, link.Client(t))
		before := link.Count(recipestest.OpGetData)
		link.Delay(time.Millisecond)
		first, joins := s.Watch(path), s.Watch(path)
		_, err := first.Ready(lasting(t))
		require.ErrorIs(t, err, zk.ErrNoNode)

		s.Watch(path) // begins the second read
		late := later(func() error {
			_, err := joins.Ready(lasting(t))
			return err
		})
		synctest.Wait() // until it has joined that, too
		require.ErrorIs(t, wait(t, late), zk.ErrNoNode)
		require.Equal(t, 2, link.Count(recipestest.OpGetData)-before)
	})
}

// A read that found no node may be shared by a caller who has learnt of the node since. Answers
// that come together are seen in any order: on one processor the last one is seen first.
func TestWatchSharesNoOldAbsence(t *testing.T) {
	each(t, func(t *testing.T, srv *recipestest.Server) {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
		root, other := srv.Root(t), session(t, srv.Client(t))
		for i := range 20 {
			link, path := srv.Link(t), fmt.Sprint(root, "/", i)
			var held sync.RWMutex
			s := session(t, link.Client(t, protocol.WithDialer(func(network, address string, timeout time.Duration) (net.Conn, error) {
				c, err := link.Dial(network, address, timeout)
				return heldConn{c, &held}, err
			})))
			read, synced := link.Answered(recipestest.OpGetData, 1), link.Answered(recipestest.OpSync, 1)
			held.Lock()
			deliver := sync.OnceFunc(held.Unlock)
			t.Cleanup(deliver)
			early := s.Watch(path)
			wait(t, read)
			_, err := other.EnsurePath(lasting(t), path)
			require.NoError(t, err)
			late := make(chan error)
			go func() {
				err := s.Sync(lasting(t), path)
				if err == nil {
					_, err = s.Watch(path).Ready(lasting(t))
				}
				late <- err
			}()
			wait(t, synced)
			deliver()

			require.NoError(t, <-late, "the node was there before the call")
			_, err = early.Ready(lasting(t))
			require.ErrorIs(t, err, zk.ErrNoNode)
		}
	})
}
