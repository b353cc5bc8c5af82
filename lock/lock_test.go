package lock_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

func TestMutexIsAFairLock(t *testing.T) {
	suite.Conform(t, ways("Mutex"), lock.ErrLocked)
}

func TestSimpleIsALock(t *testing.T) {
	suite.ConformUnfair(t, ways("Simple"), lock.ErrLocked)
}

func TestLockIsGrantedInOrderOfArrival(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		const n = 8
		path := srv.Root(t) + "/order"
		first := lock.New(srv.Client(t), path)
		held := suite.Must(t, first.Lock)

		granted := make(chan int, n)
		var wait suite.Group
		for i := range n {
			m := lock.New(srv.Client(t), path)
			wait.Go(func() error {
				l, err := m.Lock(t.Context())
				if err != nil {
					return err
				}
				granted <- i
				return l.Unlock(t.Context())
			})
			suite.Await(t, i+2, first.Contenders)
		}

		require.NoError(t, held.Unlock(t.Context()))
		require.NoError(t, wait.Wait())
		for i := range n {
			require.Equal(t, i, <-granted)
		}
	})
}

// Three contenders join. The first one leads, its session dies, and the second takes over without
// the third waking. The list of contenders shows each step.
func TestSecondTakesOverFromDeadHolderWhileThirdSleeps(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/story"
		links := make([]*recipestest.Link, 3)
		leases := make([]chan *lock.Lease, 3)
		locks := make([]*lock.Mutex, 3)
		sessions := make([]int64, 3)
		clients := make([]*protocol.Client, 3)
		watcher := lock.New(srv.Client(t), path)
		var wait suite.Group
		for i := range 3 {
			links[i], leases[i] = srv.Link(t), make(chan *lock.Lease, 1)
			c := links[i].Client(t)
			clients[i] = c
			sessions[i] = suite.Session(t, c).ID()
			locks[i] = lock.New(c, path, lock.WithData(fmt.Appendf(nil, "contender %d", i+1)))
			wait.Go(func() error {
				l, err := locks[i].Lock(t.Context())
				leases[i] <- l
				return err
			})
			suite.Await(t, i+1, watcher.Contenders)
		}

		<-links[1].Answered(recipestest.OpGetData, 2) // it watches its own node and the first one's
		<-links[2].Answered(recipestest.OpGetData, 2)
		<-links[2].Answered(recipestest.OpExists, 1) // and the release marker, as two are ahead
		line := suite.Await(t, 3, watcher.Contenders)
		for i, c := range line {
			require.Equal(t, sessions[i], c.Session)
			require.Equal(t, fmt.Sprintf("contender %d", i+1), string(c.Data))
		}

		one := <-leases[0]
		require.Equal(t, one.Token(), line[0].Token)

		srv.ExpireSession(sessions[0])
		two := <-leases[1]
		require.Greater(t, two.Token(), one.Token())
		<-one.Done()
		require.ErrorIs(t, one.Err(), protocol.ErrLost)
		line = suite.Await(t, 2, watcher.Contenders)
		require.Equal(t, sessions[1], line[0].Session)
		require.Equal(t, sessions[2], line[1].Session)
		require.Equal(t, 1, links[1].Events(), "one wake-up for one death")
		require.Zero(t, links[2].Events(), "the third was woken")

		require.NoError(t, two.Unlock(t.Context()))
		three := <-leases[2]
		require.NoError(t, wait.Wait())
		require.Greater(t, three.Token(), two.Token())
		<-links[2].Answered(recipestest.OpEvent, 2)
		suite.CatchUp(t, clients[2])
		require.Equal(t, 2, links[2].Events(), "one wake-up for one release: the marker and the node's deletion")
		require.Equal(t, 1, links[2].Count(recipestest.OpGetChildren), "the marker says that it is next")
		require.Len(t, suite.Await(t, 1, watcher.Contenders), 1)
		require.ErrorIs(t, one.Unlock(t.Context()), protocol.ErrLost)
		require.NoError(t, three.Unlock(t.Context()))
	})
}

func TestGoroutinesOfOneClientExcludeEachOther(t *testing.T) {
	eachKind(t, func(t *testing.T, srv *recipestest.Server, newLock newFunc) {
		c, path := srv.Client(t), srv.Root(t)+"/shared"
		shared := newLock(c, path)
		var inside, runs atomic.Int32
		var wait suite.Group
		for i := range 10 {
			m := shared
			if i%2 == 1 {
				m = newLock(c, path)
			}
			wait.Go(func() error {
				return m.Do(t.Context(), func(context.Context, *lock.Lease) error {
					if n := inside.Add(1); n != 1 {
						return fmt.Errorf("%d holders", n)
					}
					runs.Add(1)
					runtime.Gosched()
					inside.Add(-1)
					return nil
				})
			})
		}

		require.NoError(t, wait.Wait())
		require.EqualValues(t, 10, runs.Load())
	})
}

// A call whose ctx is done has failed, whether the grant or the end of ctx came first.
func TestContextThatEndsAtAnyStepFails(t *testing.T) {
	eachKind(t, func(t *testing.T, srv *recipestest.Server, newLock newFunc) {
		link, path := srv.Link(t), srv.Root(t)+"/ends"
		c := link.Client(t)
		m, watcher := newLock(c, path), newLock(srv.Client(t), path)

		for range 5 {
			again := 0
			for step, met := 1, true; met; step++ {
				// Work in the background must not count as a step.
				suite.Await(t, 0, watcher.Contenders)
				require.True(t, suite.Exists(t, c, "/"))

				ctx := &quietContext{Context: t.Context()}
				over := suite.At(link, step, func() { ctx.ended.Store(true) })
				l, err := m.Lock(ctx)
				met = over()

				switch {
				case err != nil:
					require.True(t, met)
					require.ErrorIs(t, err, context.Canceled, "step %d", step)
					again = 0
				case met:
					// The packet belonged to the holder, and came when Lock was about to return or
					// had returned. A packet that Lock waits for would be met every time.
					require.Less(t, again, 10, "step %d", step)
					again++
					step--
					fallthrough
				default:
					suite.Unlock(t, l)
				}
			}
		}

		suite.Await(t, 0, watcher.Contenders)
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

// A busy lock is left alone, and a free one is given back whatever becomes of fn.
func TestTryDoHoldsTheLockOrDoesNotCall(t *testing.T) {
	eachKind(t, func(t *testing.T, srv *recipestest.Server, newLock newFunc) {
		path, link := srv.Root(t)+"/try", srv.Link(t)
		c := link.Client(t)
		m, other := newLock(c, path), newLock(srv.Client(t), path)
		writes := func() int {
			return link.Count(recipestest.OpCreate) + link.Count(recipestest.OpMulti) + link.Count(recipestest.OpDelete)
		}
		held := suite.Must(t, other.Lock)
		suite.CatchUp(t, c)
		before := writes()
		err := m.TryDo(suite.Lasting(t), func(context.Context, *lock.Lease) error { return nil })
		require.ErrorIs(t, err, lock.ErrLocked)
		require.EqualError(t, err, "lock: "+path+": locked")
		require.Equal(t, before, writes())
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

		// A lease that is lost ends fn's context.
		err = m.TryDo(t.Context(), func(ctx context.Context, l *lock.Lease) error {
			require.NoError(t, other.Break(t.Context(), l.Node()))
			<-ctx.Done()
			return context.Cause(ctx)
		})
		require.ErrorIs(t, err, protocol.ErrLost)
		suite.Await(t, 0, m.Contenders)
	})
}

func TestUnlockSucceedsThoughItsReplyIsLost(t *testing.T) {
	eachKind(t, func(t *testing.T, srv *recipestest.Server, newLock newFunc) {
		link, path := srv.Link(t), srv.Root(t)+"/answer"
		m := newLock(link.Client(t), path)
		l := suite.Must(t, m.Lock)
		link.LoseReply(recipestest.OpDelete, 2)
		require.NoError(t, l.Unlock(t.Context()))
		suite.Await(t, 0, m.Contenders)
	})
}

func TestNumbersNearTheCountersEndAreRefused(t *testing.T) {
	t.Parallel()
	srv := recipestest.Start(t)
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
}

func TestNodesOfOtherRecipesAreIgnored(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		c, path := srv.Client(t), srv.Root(t)+"/others"
		s := suite.Session(t, c)
		_, err := s.EnsurePath(t.Context(), path)
		require.NoError(t, err)
		_, err = s.Conn().Create(path+"/read-0000000000", nil, 0, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
		m := lock.New(c, path)
		l := suite.Must(t, m.Lock)
		require.Equal(t, l.Node(), suite.Await(t, 1, m.Contenders)[0].Node)
		_, err = lock.New(srv.Client(t), path).TryLock(t.Context())
		require.ErrorIs(t, err, lock.ErrLocked)
		suite.Unlock(t, l)
	})
}

func TestNilContextIsRefusedWhileTheClientHoldsTheLock(t *testing.T) {
	t.Parallel()
	srv := recipestest.Start(t)
	m := lock.New(srv.Client(t), srv.Root(t)+"/lock")
	l := suite.Must(t, m.Lock)
	for _, try := range []func(context.Context) (*lock.Lease, error){m.Lock, m.TryLock} {
		var none context.Context
		_, err := try(none)
		require.ErrorContains(t, err, "nil context")
	}
	suite.Unlock(t, l)
}

func TestBadInputIsRefusedBeforeAnyIO(t *testing.T) {
	t.Parallel()
	srv := recipestest.Start(t)
	link := srv.Link(t)
	c := link.Client(t)
	before := link.Packets()

	for name, bad := range map[string]struct {
		locks []locker
		want  error
	}{
		"nil client":    {[]locker{lock.New(nil, "/a"), lock.NewSimple(nil, "/a")}, nil},
		"empty path":    {[]locker{lock.New(c, ""), lock.NewSimple(c, "")}, zk.ErrInvalidPath},
		"relative path": {[]locker{lock.New(c, "a"), lock.NewSimple(c, "a")}, zk.ErrInvalidPath},
		"dots":          {[]locker{lock.New(c, "/a/../b"), lock.NewSimple(c, "/a/../b")}, zk.ErrInvalidPath},
		"slash at end":  {[]locker{lock.New(c, "/a/"), lock.NewSimple(c, "/a/")}, zk.ErrInvalidPath},
		"root":          {[]locker{lock.New(c, "/"), lock.NewSimple(c, "/")}, zk.ErrInvalidPath},
		"too much data": {[]locker{lock.New(c, "/a", tooMuch), lock.NewSimple(c, "/a", tooMuch)}, protocol.ErrTooLarge},
		"bad view":      {[]locker{lock.New(c.With(protocol.WithACL(nil)), "/a")}, nil},
	} {
		for _, m := range bad.locks {
			_, err := m.Lock(t.Context())
			require.Error(t, err, name)
			require.ErrorContains(t, err, "lock: ", name)
			if bad.want != nil {
				require.ErrorIs(t, err, bad.want, name)
			}

			_, err = m.TryLock(t.Context())
			require.Error(t, err, name)
			require.Error(t, m.Do(t.Context(), func(context.Context, *lock.Lease) error { return nil }), name)
			require.Error(t, m.TryDo(t.Context(), func(context.Context, *lock.Lease) error { return nil }), name)
			if name != "too much data" {
				_, err = m.Contenders(t.Context())
				require.Error(t, err, name)
				require.Error(t, m.Break(t.Context(), "x"), name)
			}
		}
	}

	require.Equal(t, before, link.Packets())
}

// A Simple that finds out in the transaction that it is too late looks again, and has created no
// node.
func TestSimpleThatIsTooLateCreatesNoNode(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link := srv.Root(t)+"/simple", srv.Link(t)
		m := lock.NewSimple(link.Client(t), path)
		require.NoError(t, suite.Must(t, m.Lock).Unlock(t.Context()))
		creates, multis := link.Count(recipestest.OpCreate), link.Count(recipestest.OpMulti)
		_, err := suite.Session(t, srv.Client(t)).Set(t.Context(), path, nil, -1)
		require.NoError(t, err)

		require.NoError(t, suite.Must(t, m.Lock).Unlock(t.Context()))

		require.Equal(t, creates, link.Count(recipestest.OpCreate))
		require.Greater(t, link.Count(recipestest.OpMulti), multis+1)
	})
}
