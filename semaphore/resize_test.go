package semaphore_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/semaphore"
)

func TestDisagreementIsReported(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/s"
		three, four := semaphore.New(srv.Client(t), path, 3), semaphore.New(srv.Client(t), path, 4)
		p := acquire(t, three)

		_, err := four.Acquire(t.Context())
		require.ErrorIs(t, err, semaphore.ErrPermits)
		require.EqualError(t, err, "semaphore: "+path+": contenders disagree about the number of permits: 4 here, 3 at the path")
		_, err = four.TryAcquire(t.Context())
		require.ErrorIs(t, err, semaphore.ErrPermits)

		release(t, p)
		release(t, acquire(t, four))
	})
}

func TestDisagreementIsReportedBehindAnotherRecipe(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, operator := srv.Root(t)+"/s", srv.Client(t)
		session := suite.Session(t, operator)
		_, err := session.EnsurePath(t.Context(), path)
		require.NoError(t, err)
		lock, err := session.Conn().CreateProtectedEphemeralSequential(path+"/lock-", nil, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
		three, four := semaphore.New(srv.Client(t), path, 3), semaphore.New(srv.Client(t), path, 4)
		waiting := later(suite.Lasting(t), three)
		synctest.Wait()
		require.Len(t, contenders(t, three, 1), 1, "without the lock")

		_, err = four.Acquire(suite.Lasting(t))
		require.ErrorIs(t, err, semaphore.ErrPermits)

		require.Empty(t, waiting)
		require.NoError(t, session.Conn().Delete(lock, -1))
		release(t, suite.Wait(t, waiting))
	})
}

func TestResizeLetsWaitersIn(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/s"
		s, other := semaphore.New(srv.Client(t), path, 1), semaphore.New(srv.Client(t), path, 1)
		p := acquire(t, s)
		waiting := later(t.Context(), s)
		contenders(t, s, 2)
		refused := suite.Later(func() error { _, err := other.Acquire(t.Context()); return err })
		contenders(t, s, 3)

		require.NoError(t, s.Resize(t.Context(), 2))

		q := suite.Wait(t, waiting)
		require.ErrorIs(t, suite.Wait(t, refused), semaphore.ErrPermits)
		require.NoError(t, p.Err())
		require.NoError(t, other.Resize(t.Context(), 2))
		_, err := other.TryAcquire(t.Context())
		require.ErrorIs(t, err, semaphore.ErrNoPermit)
		release(t, p)
		release(t, acquire(t, other))
		release(t, q)

		require.NoError(t, s.Resize(t.Context(), 1))
		p = acquire(t, s)
		_, err = s.TryAcquire(t.Context())
		require.ErrorIs(t, err, semaphore.ErrNoPermit)
		release(t, p)
	})
}

// A contender that has another number, and has not looked yet, may become the first one, whose
// number counts. None that counts on the old number is granted behind it.
func TestContenderWithAnotherNumberIsWaitedFor(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		c, path := srv.Client(t), srv.Root(t)+"/s"
		at := func() *semaphore.Semaphore { return semaphore.New(srv.Client(t), path, 3) }
		p := acquire(t, at())
		conn := suite.Session(t, c).Conn()
		other, err := conn.Create(path+"/0123456789abcdef-01234567-of-4-permit-", nil,
			zk.FlagEphemeralSequential, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)

		waiting := later(t.Context(), at())
		contenders(t, at(), 3)
		_, err = at().TryAcquire(t.Context())
		require.ErrorIs(t, err, semaphore.ErrNoPermit)
		require.Empty(t, waiting)

		require.NoError(t, conn.Delete(other, -1))
		release(t, p, suite.Wait(t, waiting))
	})
}

// Once a number was set at the path, a contender with another number is one contender.
func TestContenderWithAnotherNumberIsCountedBehindTheLimit(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		c, path := srv.Client(t), srv.Root(t)+"/s"
		s, conn := semaphore.New(c, path, 2), suite.Session(t, c).Conn()
		require.NoError(t, s.Resize(t.Context(), 2))
		other, err := conn.Create(path+"/0123456789abcdef-01234567-of-4-permit-", nil,
			zk.FlagEphemeralSequential, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)

		p, err := s.TryAcquire(t.Context())
		require.NoError(t, err)
		require.ErrorIs(t, releaseOf(s.TryAcquire(t.Context())), semaphore.ErrNoPermit)
		release(t, p)
		require.NoError(t, conn.Delete(other, -1))
	})
}

// Nodes of this kind that are not ours say no number.
func TestContenderWithoutANumberIsCounted(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		c, path := srv.Client(t), srv.Root(t)+"/s"
		conn, s := suite.Session(t, c).Conn(), semaphore.New(c, path, 2)
		_, err := suite.Session(t, c).EnsurePath(t.Context(), path)
		require.NoError(t, err)
		foreign, err := conn.Create(path+"/foreign-of--2-permit-", nil, zk.FlagEphemeralSequential, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
		p := acquire(t, s)
		_, err = s.TryAcquire(t.Context())
		require.ErrorIs(t, err, semaphore.ErrNoPermit)
		release(t, p)
		require.NoError(t, conn.Delete(foreign, -1))
	})
}

// A foreign node whose name ends as that of a number does says no number, and stays.
func TestForeignNodeIsNoNumber(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		c, path := srv.Client(t), srv.Root(t)+"/s"
		conn, s := suite.Session(t, c).Conn(), semaphore.New(c, path, 1)
		require.NoError(t, s.Resize(t.Context(), 1))
		foreign, err := conn.Create(path+"/rate-limit-", nil, zk.FlagSequence, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
		p := acquire(t, s)
		two := semaphore.New(srv.Client(t), path, 2)
		require.ErrorIs(t, releaseOf(two.TryAcquire(t.Context())), semaphore.ErrPermits)
		require.NoError(t, s.Resize(t.Context(), 2))
		release(t, acquire(t, two), p)
		there, _, err := conn.Exists(foreign)
		require.NoError(t, err)
		require.True(t, there)
	})
}

// The first in line is foreign and says no number. The next one does.
func TestNumberIsThatOfTheFirstThatHasOne(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		c, path := srv.Client(t), srv.Root(t)+"/s"
		session := suite.Session(t, c)
		_, err := session.EnsurePath(t.Context(), path)
		require.NoError(t, err)
		foreign, err := session.Conn().Create(path+"/foreign-permit-", nil, zk.FlagEphemeralSequential, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
		p := acquire(t, semaphore.New(c, path, 2))
		err = releaseOf(semaphore.New(srv.Client(t), path, 3).TryAcquire(t.Context()))
		require.ErrorIs(t, err, semaphore.ErrPermits)
		release(t, p)
		require.NoError(t, session.Conn().Delete(foreign, -1))
	})
}

func TestResizeToTheSameNumberChangesNothing(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		c, path := srv.Client(t), srv.Root(t)+"/s"
		s := semaphore.New(c, path, 2)
		require.NoError(t, s.Resize(t.Context(), 2))
		limit := limits(t, c, path)
		require.Len(t, limit, 1)
		require.NoError(t, s.Resize(t.Context(), 2))
		require.NoError(t, semaphore.New(srv.Client(t), path, 7).Resize(t.Context(), 2))
		require.Equal(t, limit, limits(t, c, path))
		one, two := acquire(t, s), acquire(t, s)
		_, err := s.TryAcquire(t.Context())
		require.ErrorIs(t, err, semaphore.ErrNoPermit)
		release(t, one, two)
	})
}

// There may be two numbers for a moment, and longer if a process dies in the middle of a Resize.
func TestLatestNumberCounts(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		c, path := srv.Client(t), srv.Root(t)+"/s"
		session := suite.Session(t, c)
		_, err := session.EnsurePath(t.Context(), path)
		require.NoError(t, err)
		for _, name := range []string{"-of-1-limit-", "-of-2-limit-"} {
			_, err := session.Conn().Create(path+"/"+session.NewOwner().String()+name, nil, zk.FlagSequence, zk.WorldACL(zk.PermAll))
			require.NoError(t, err)
		}
		require.ErrorIs(t, releaseOf(semaphore.New(c, path, 1).Acquire(t.Context())), semaphore.ErrPermits)
		s := semaphore.New(c, path, 2)
		release(t, acquire(t, s))
		require.NoError(t, s.Resize(t.Context(), 2))
		require.Len(t, limits(t, c, path), 1)
	})
}

// After a reduction the holders keep their permits, and no other contender gets one until enough
// have gone.
func TestReductionKeepsHolders(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/s"
		s := semaphore.New(srv.Client(t), path, 3)
		held := []*semaphore.Permit{acquire(t, s), acquire(t, s), acquire(t, s)}
		waiting := later(t.Context(), s)
		contenders(t, s, 4)
		require.NoError(t, s.Resize(t.Context(), 1))
		for _, p := range held {
			require.NoError(t, p.Err())
			require.Empty(t, waiting)
			_, err := s.TryAcquire(t.Context())
			require.ErrorIs(t, err, semaphore.ErrNoPermit)
			release(t, p)
		}
		release(t, suite.Wait(t, waiting))
	})
}

// The contenders of a semaphore that is being resized never count on more permits than the path
// has.
func TestSemaphoreThatIsBeingResizedHeedsThePath(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link := srv.Root(t)+"/s", srv.Link(t)
		here, there := semaphore.New(link.Client(t), path, 3), semaphore.New(srv.Client(t), path, 3)
		var held []*semaphore.Permit
		for range 3 {
			held = append(held, acquire(t, there))
		}
		waiting := later(t.Context(), here)
		synctest.Wait()

		// The first request of Resize is on its way while others change the number, and one of them
		// releases.
		resized := make(chan error, 1)
		link.Delay(200 * time.Millisecond)
		go func() { resized <- here.Resize(t.Context(), 2) }()
		synctest.Wait()
		require.NoError(t, there.Resize(t.Context(), 2))
		release(t, held[0])
		require.NoError(t, <-resized)
		link.Delay(0)
		time.Sleep(time.Minute)
		require.Empty(t, waiting, "two hold")
		release(t, held[1])
		release(t, <-waiting)
		release(t, held[2])
	})
}

// Waiters hear of a new number at once, wherever they are when it is set.
func TestResizeIsHeardOfByAWaiterThatIsLooking(t *testing.T) {
	const end = 40
	for step := 1; step < end; step++ {
		synctest.Test(t, func(t *testing.T) {
			srv := recipestest.Start(t, recipestest.WithInMemory())
			path, link := srv.Root(t)+"/s", srv.Link(t)
			s, other := semaphore.New(srv.Client(t), path, 1), semaphore.New(link.Client(t), path, 1)
			held := acquire(t, s)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			inTime := false // and not when the waiter withdraws
			stop := suite.At(link, step, func() {
				inTime = ctx.Err() == nil
				require.NoError(t, s.Resize(t.Context(), 2))
			})
			p, err := other.Acquire(ctx)
			if stop() && inTime {
				require.ErrorIs(t, err, semaphore.ErrPermits, "step %d", step)
			} else {
				require.Nil(t, p)
			}
			release(t, held)
		})
	}
}

func TestConcurrentResizesAgree(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		c, path := srv.Client(t), srv.Root(t)+"/s"
		var all []*semaphore.Semaphore
		var wait suite.Group
		for i := range 4 {
			s := semaphore.New(srv.Client(t), path, 1)
			all = append(all, s)
			for range 3 {
				wait.Go(func() error { return s.Resize(t.Context(), 2+i%2) })
			}
			wait.Go(func() error {
				err := s.Do(t.Context(), func(context.Context, *semaphore.Permit) error { return nil })
				if errors.Is(err, semaphore.ErrPermits) {
					return nil // until they agree
				}
				return err
			})
		}
		require.NoError(t, wait.Wait())

		// Some may have been overruled. The last word is had by all.
		agreed := 0
		for _, s := range all {
			if p, err := s.TryAcquire(t.Context()); err == nil {
				agreed++
				release(t, p)
			} else {
				require.ErrorIs(t, err, semaphore.ErrPermits)
			}
		}
		require.NotZero(t, agreed)
		for _, s := range all {
			require.NoError(t, s.Resize(t.Context(), 5))
		}
		require.Len(t, limits(t, c, path), 1)
		var held []*semaphore.Permit
		for i := range 5 {
			held = append(held, acquire(t, all[i%len(all)]))
		}
		_, err := all[0].TryAcquire(t.Context())
		require.ErrorIs(t, err, semaphore.ErrNoPermit)
		release(t, held...)
	})
}

// A server that lags shows the number that was set before.
func TestResizeReplacesANumberThatItsServerDoesNotShowYet(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link, follower := srv.Root(t)+"/s", srv.Link(t), srv.Embedded().Follower()
		link.Move(follower)
		two, three := semaphore.New(link.Client(t), path, 1), semaphore.New(srv.Client(t), path, 1)
		require.NoError(t, two.Resize(t.Context(), 2))
		follower.Lag(time.Second)
		require.NoError(t, three.Resize(t.Context(), 3))
		require.NoError(t, two.Resize(t.Context(), 2))
		require.ErrorIs(t, releaseOf(three.Acquire(t.Context())), semaphore.ErrPermits)
		release(t, acquire(t, two))
	})
}

// Of two numbers that are set at the same time the later one counts. The Resize that is overruled
// does not set its own again.
func TestResizeThatIsOverruledGivesWay(t *testing.T) {
	suite.Sweep(t, func(step int) (met bool) {
		synctest.Test(t, func(t *testing.T) {
			srv := recipestest.Start(t, recipestest.WithInMemory())
			path, link, c := srv.Root(t)+"/s", srv.Link(t), srv.Client(t)
			two, three := semaphore.New(link.Client(t), path, 1), semaphore.New(c, path, 1)
			number := "-of-2-"
			over := suite.At(link, step, func() {
				if link.Count(recipestest.OpMulti) > 0 { // the other number is set
					number = "-of-3-"
				}
				require.NoError(t, three.Resize(t.Context(), 3))
			})
			require.NoError(t, two.Resize(t.Context(), 2), "step %d", step)
			met = over()
			at := limits(t, c, path)
			require.Len(t, at, 1, "step %d", step)
			require.Contains(t, at[0], number, "step %d", step)
		})
		return met
	})
}

// Two goroutines resize one semaphore. The one whose number is overruled at the path is the slower
// one.
func TestResizesOfOneSemaphoreLeaveItUsable(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link := srv.Root(t)+"/s", srv.Link(t)
		slow := func() backoff.BackOff { return backoff.NewConstantBackOff(time.Second) }
		s := semaphore.New(link.Client(t, protocol.WithBackOff(slow)), path, 1)
		release(t, acquire(t, s))
		link.Delay(10 * time.Millisecond)
		resize := func(ctx context.Context, n int) <-chan error {
			return suite.Later(func() error { return s.Resize(ctx, n) })
		}
		two := resize(t.Context(), 2)
		time.Sleep(5 * time.Millisecond)
		three := resize(t.Context(), 3)
		time.Sleep(90 * time.Millisecond)
		const connectionLoss = -4
		link.Fail(recipestest.OpSync, path, connectionLoss, 1)
		require.NoError(t, <-two)
		require.NoError(t, <-three)
		synctest.Wait()
		release(t, acquire(t, s))
	})
}

// The numbers that are in force before and after a Resize hold, and one node remains, whatever
// happens meanwhile.
func TestFaultAtEachStepOfAResize(t *testing.T) {
	suite.EmbeddedAndReal(t, func(t *testing.T, srv *recipestest.Server) {
		root := srv.Root(t)
		for _, f := range suite.QuickFaults {
			t.Run(f.Name, func(t *testing.T) {
				t.Parallel()
				suite.Sweep(t, func(step int) bool {
					return resizeUnder(t, srv, fmt.Sprintf("%s/%s/%d", root, f.Name, step), f, step)
				})
			})
		}
	})
}

func TestLongFaultAtEachStepOfAResize(t *testing.T) {
	for _, f := range suite.SlowFaults(10 * time.Second) {
		t.Run(f.Name, func(t *testing.T) {
			t.Parallel()
			suite.Sweep(t, func(step int) (met bool) {
				synctest.Test(t, func(t *testing.T) {
					srv := recipestest.Start(t, recipestest.WithInMemory())
					met = resizeUnder(t, srv, srv.Root(t)+"/s", f, step)
				})
				return met
			})
		})
	}
}

func resizeUnder(t *testing.T, srv *recipestest.Server, path string, f suite.Fault, step int) (met bool) {
	ctx := suite.Within(t, 10*time.Minute)
	link, sound := srv.Link(t), srv.Client(t)
	victim := link.Client(t)
	defer suite.Close(t, sound)
	session := suite.Session(t, victim).ID()
	first, s := semaphore.New(sound, path, 1), semaphore.New(victim, path, 1)
	p, err := first.Acquire(ctx)
	require.NoError(t, err)

	over := suite.At(link, step, func() { f.Do(srv, link, session) })
	waiting := suite.Later(func() error {
		p, err := s.Acquire(ctx)
		if err != nil {
			return err
		}
		if err := p.Release(ctx); !errors.Is(err, protocol.ErrLost) {
			return err
		}
		return nil
	})
	require.NoError(t, s.Resize(ctx, 2), "step %d", step)
	require.NoError(t, <-waiting, "step %d", step)
	require.NoError(t, s.Resize(ctx, 3), "step %d", step)
	met = over()
	link.Heal()

	require.ErrorIs(t, releaseOf(first.Acquire(ctx)), semaphore.ErrPermits, "step %d", step)
	require.NoError(t, first.Resize(ctx, 3))
	two, err := first.Acquire(ctx)
	require.NoError(t, err)
	three, err := semaphore.New(sound, path, 3).Acquire(ctx)
	require.NoError(t, err)
	require.ErrorIs(t, releaseOf(first.TryAcquire(ctx)), semaphore.ErrNoPermit, "step %d", step)
	for _, p := range []*semaphore.Permit{p, two, three} {
		if err := p.Release(ctx); !errors.Is(err, protocol.ErrLost) {
			require.NoError(t, err)
		}
	}
	suite.Close(t, victim)
	contenders(t, first, 0)
	require.Len(t, limits(t, sound, path), 1, "step %d", step)
	return met
}

// releaseOf releases what should not have been acquired.
func releaseOf(p *semaphore.Permit, err error) error {
	if err == nil {
		return p.Release(context.Background())
	}
	return err
}

// A Resize whose ctx ends may have changed the number or not: both are as good as ever, and another
// call changes it.
func TestResizeThatIsGivenUpAtAnyStepIsCalledAgain(t *testing.T) {
	suite.Sweep(t, func(step int) (met bool) {
		synctest.Test(t, func(t *testing.T) {
			srv := recipestest.Start(t, recipestest.WithInMemory())
			path, link, c := srv.Root(t)+"/s", srv.Link(t), srv.Client(t)
			s := semaphore.New(link.Client(t), path, 1)
			p := acquire(t, semaphore.New(c, path, 1))
			waiting := later(t.Context(), s)
			synctest.Wait()

			ctx, cancel := context.WithCancel(t.Context())
			over := suite.At(link, step, func() { cancel(); link.Cut(); time.AfterFunc(time.Second, link.Heal) })
			err := s.Resize(ctx, 2)
			if met = over(); met && err != nil {
				require.ErrorIs(t, err, context.Canceled, "step %d", step)
			}
			time.Sleep(time.Minute)
			require.NoError(t, s.Resize(t.Context(), 2), "step %d", step)
			if next := <-waiting; next != nil {
				release(t, next)
			}
			release(t, acquire(t, s), p)
			require.Len(t, limits(t, c, path), 1, "step %d", step)
		})
		return met
	})
}

// Resize needs a permission that its caller does not have.
func TestResizeThatMayNotTellAContenderSaysSo(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/s"
		closed := srv.Client(t).With(protocol.WithACL([]zk.ACL{
			{Perms: zk.PermRead | zk.PermCreate | zk.PermDelete, Scheme: "world", ID: "anyone"},
		}))
		s := semaphore.New(srv.Client(t), path, 1)
		require.NoError(t, s.Resize(t.Context(), 1))
		p := acquire(t, semaphore.New(closed, path, 1))
		err := s.Resize(t.Context(), 2)
		require.ErrorIs(t, err, zk.ErrNoAuth)
		require.ErrorContains(t, err, "semaphore: "+path+": ")
		release(t, acquire(t, s), p)
	})
}
