package semaphore_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/semaphore"
)

func TestMain(m *testing.M) { suite.Main(m) }

func release(t testing.TB, permits ...*semaphore.Permit) {
	t.Helper()
	for _, p := range permits {
		require.NoError(t, p.Release(suite.Lasting(t)))
	}
}

func later(ctx context.Context, s *semaphore.Semaphore) <-chan *semaphore.Permit {
	return suite.Later(func() *semaphore.Permit { p, _ := s.Acquire(ctx); return p })
}

// requirePermits requires that the path of the semaphore has this number.
func requirePermits(t testing.TB, want int, s *semaphore.Semaphore) {
	t.Helper()
	require.Equal(t, want, suite.Must(t, s.Permits))
}

func TestBadInputIsRefusedBeforeAnyIO(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link := srv.Link(t)
		c := link.Client(t)
		for _, n := range []int{0, -1} {
			_, err := semaphore.New(c, "/a", n).Acquire(t.Context())
			require.ErrorContains(t, err, fmt.Sprint("at least one permit, got ", n))
		}
		require.ErrorContains(t, semaphore.New(c, "/a", 1).Resize(t.Context(), 0), "/a: a semaphore needs at least one permit")
		require.Zero(t, link.Count(recipestest.OpAny))
	})
}

// A rolling deployment with another number changes nothing.
func TestNumberIsThePaths(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		c, path := srv.Client(t), srv.Root(t)+"/s"
		three, four := semaphore.New(c, path, 3), semaphore.New(srv.Client(t), path, 4)
		held := suite.Must(t, three.Acquire)
		data, _ := suite.Get(t, c, path)
		require.Equal(t, "3", string(data))
		requirePermits(t, 3, four)
		release(t, held, suite.Must(t, four.Acquire), suite.Must(t, four.Acquire))

		strict := semaphore.New(c, path, 4, semaphore.WithStrictPermits())
		_, err := strict.Acquire(t.Context())
		require.EqualError(t, err, "semaphore: "+path+": another number of permits: 4 here, 3 at the path")
		require.ErrorIs(t, suite.Err(strict.Permits(t.Context())), semaphore.ErrPermits)
	})
}

// What is no number was put there for another purpose, and is neither used nor replaced.
func TestDataThatAreNoNumberAreRefused(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		c := srv.Client(t)
		for data, permits := range map[string]int{" 2\n": 2, "": 1, "0": 0, "-1": 0, "two": 0, "1e1": 0} {
			path := srv.Root(t) + "/s"
			suite.Keep(t, c, path)
			suite.Got(suite.Session(t, c).Set(t.Context(), path, []byte(data), -1))(t)
			s := semaphore.New(c, path, 1)
			if permits > 0 {
				requirePermits(t, permits, s)
				continue
			}
			require.ErrorIs(t, suite.Err(s.Permits(t.Context())), semaphore.ErrPermits, data)
			require.ErrorIs(t, suite.Err(s.Acquire(t.Context())), semaphore.ErrPermits, data)
			require.ErrorIs(t, s.Resize(t.Context(), 2), semaphore.ErrPermits, data)
			there, _ := suite.Get(t, c, path)
			require.Equal(t, data, string(there))
		}
	})
}

// A new number lets waiters in. After a reduction the holders keep their permits, and no other
// contender gets one until enough have gone (even if it had listed the line before that, and a
// quorum confirms its session after a long wait).
func TestResizeLetsWaitersInAndKeepsHolders(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link := srv.Root(t)+"/s", srv.Link(t)
		s, other := semaphore.New(srv.Client(t), path, 1), semaphore.New(srv.Client(t), path, 5)
		strict := semaphore.New(srv.Client(t), path, 1, semaphore.WithStrictPermits())
		held := []*semaphore.Permit{suite.Must(t, s.Acquire)}
		waiting := later(t.Context(), s)
		time.Sleep(time.Second)
		refused := suite.Later(func() error { _, err := strict.Acquire(t.Context()); return err })
		synctest.Wait()
		require.NoError(t, other.Resize(t.Context(), 3))
		held = append(held, suite.Wait(t, waiting), suite.Must(t, s.Acquire))
		require.ErrorIs(t, suite.Wait(t, refused), semaphore.ErrPermits)
		suite.Await(t, 3, other.Contenders) // the node that keeps the number is none

		waiting = later(t.Context(), semaphore.New(link.Client(t), path, 1))
		time.Sleep(time.Minute)
		link.Delay(50 * time.Millisecond)
		release(t, held[0])
		time.Sleep(160 * time.Millisecond) // it has listed the line
		require.NoError(t, other.Resize(t.Context(), 1))
		time.Sleep(time.Second)
		for _, p := range held[1:] {
			require.NoError(t, p.Err())
			require.Empty(t, waiting)
			release(t, p)
			time.Sleep(time.Second)
		}
		release(t, suite.Wait(t, waiting))
	})
}

// A container that is idle is deleted with its number, which a Resize keeps: also if there was a
// contender, or none.
func TestNumberOfResizeOutlastsTheContainer(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		for _, busy := range []bool{false, true} {
			path := srv.Root(t) + "/s"
			release(t, suite.Must(t, semaphore.New(srv.Client(t), path, 7).Acquire))
			srv.Embedded().ReapContainers()
			s := semaphore.New(srv.Client(t), path, 2)
			requirePermits(t, 2, s) // the next one says it again

			if busy {
				held := suite.Must(t, s.Acquire)
				defer release(t, held)
			}
			require.NoError(t, s.Resize(t.Context(), 3))
			srv.Embedded().ReapContainers()
			requirePermits(t, 3, semaphore.New(srv.Client(t), path, 9))
		}
	})
}

// Of two numbers that are set at the same time one is the last, and the other does not come back.
func TestResizeThatIsOverruledGivesWay(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link := srv.Root(t)+"/s", srv.Link(t)
		two, three := semaphore.New(link.Client(t), path, 1), semaphore.New(srv.Client(t), path, 1)
		for range 2 { // the second time there was a Resize before
			link.LoseReply(recipestest.OpMulti, 1)
			resized := suite.Later(func() error { return two.Resize(t.Context(), 2) })
			synctest.Wait()
			require.Empty(t, resized)
			require.NoError(t, three.Resize(t.Context(), 3))
			require.NoError(t, suite.Wait(t, resized))
			requirePermits(t, 3, three)
		}
	})
}

// A Resize wakes each session that waits once. What it does not change wakes nobody.
func TestResizeListsOnceASession(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link := srv.Root(t)+"/s", srv.Link(t)
		s, theirs := semaphore.New(srv.Client(t), path, 2), semaphore.New(link.Client(t), path, 2)
		require.NoError(t, s.Resize(t.Context(), 2))
		held := []*semaphore.Permit{suite.Must(t, s.Acquire), suite.Must(t, s.Acquire)}
		var waiting []<-chan *semaphore.Permit
		for range 30 {
			waiting = append(waiting, later(t.Context(), theirs))
			synctest.Wait()
		}
		time.Sleep(time.Second)

		listings, reads := link.Count(recipestest.OpGetChildren), link.Count(recipestest.OpGetData)
		require.NoError(t, s.Resize(t.Context(), 2))
		suite.Got(suite.Session(t, srv.Client(t)).Set(t.Context(), path+"/"+held[0].Node(), nil, -1))(t)
		synctest.Wait()
		require.Equal(t, listings, link.Count(recipestest.OpGetChildren))
		require.LessOrEqual(t, link.Count(recipestest.OpGetData), reads+1)

		require.NoError(t, s.Resize(t.Context(), 3))
		synctest.Wait()
		require.LessOrEqual(t, link.Count(recipestest.OpGetChildren), listings+2)
		require.LessOrEqual(t, link.Count(recipestest.OpGetData), reads+5)
		held = append(held, suite.Wait(t, waiting[0]))
		require.Empty(t, waiting[1])
		for _, w := range waiting[1:] {
			release(t, held[0])
			held = append(held[1:], suite.Wait(t, w))
		}
		release(t, held...)
	})
}

// Another client deletes the node that keeps the number, and another contender comes.
func TestPathWithoutItsKeeperIsNotTakenForFree(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, c := srv.Root(t)+"/s", srv.Client(t)
		s, other := semaphore.New(srv.Client(t), path, 1), semaphore.New(c, path, 1)
		require.NoError(t, other.Resize(t.Context(), 1))
		for range 3 { // then it takes one round trip
			release(t, suite.Must(t, s.Acquire))
		}
		require.NoError(t, suite.Session(t, c).Delete(t.Context(), path+"/keep", 0))
		held := suite.Must(t, other.Acquire)
		waiting := later(t.Context(), s)
		synctest.Wait()
		require.Empty(t, waiting)
		release(t, held)
		release(t, suite.Wait(t, waiting))
	})
}

// A server that lags shows the number that was set before.
func TestLaggingServerRefusesNobody(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link, follower := srv.Root(t)+"/s", srv.Link(t), srv.Embedded().Follower()
		link.Move(follower)
		here := semaphore.New(link.Client(t), path, 3, semaphore.WithStrictPermits())
		there := semaphore.New(srv.Client(t), path, 2)
		require.NoError(t, there.Resize(t.Context(), 2))
		require.ErrorIs(t, suite.Err(here.TryAcquire(t.Context())), semaphore.ErrPermits)
		follower.Lag(time.Second)
		require.NoError(t, there.Resize(t.Context(), 3))
		release(t, suite.Must(t, here.TryAcquire))
	})
}
