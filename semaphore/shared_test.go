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

// The waiters of one session that a release wakes list the line together.
func TestWaitersOfASessionShareAListing(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		const permits, waiters = 30, 40
		path, link := srv.Root(t)+"/s", srv.Link(t)
		holder, s := semaphore.New(srv.Client(t), path, permits), semaphore.New(link.Client(t), path, permits)
		var held []*semaphore.Permit
		for range permits {
			held = append(held, acquire(t, holder))
		}
		got := make(chan *semaphore.Permit, waiters)
		var wait suite.Group
		for range waiters {
			wait.Go(func() error {
				p, err := s.Acquire(t.Context())
				got <- p
				return err
			})
		}
		time.Sleep(time.Second)
		link.Delay(time.Millisecond) // so that all that are woken ask before there is an answer
		before := link.Count(recipestest.OpGetChildren)
		require.NotZero(t, before)

		release(t, held[permits-1])
		next := <-got
		time.Sleep(time.Second)
		require.LessOrEqual(t, link.Count(recipestest.OpGetChildren)-before, 2, "of %d that were woken", permits)
		require.Empty(t, got)

		release(t, next)
		release(t, held[:permits-1]...)
		for range waiters - 1 {
			release(t, <-got)
		}
		require.NoError(t, wait.Wait())
	})
}

// A waiter that gives up, or whose connection breaks, at any step of a listing that others share does not
// take them with it.
func TestSharedListingSurvivesTheWaiterThatBeganIt(t *testing.T) {
	const waiters = 4
	for quitter := range waiters {
		t.Run(fmt.Sprint(quitter), func(t *testing.T) {
			t.Parallel()
			suite.Sweep(t, func(step int) (met bool) {
				synctest.Test(t, func(t *testing.T) {
					srv := recipestest.Start(t, recipestest.WithInMemory())
					path, link := srv.Root(t)+"/s", srv.Link(t)
					s, other := semaphore.New(link.Client(t), path, 2), semaphore.New(srv.Client(t), path, 2)
					held := []*semaphore.Permit{acquire(t, other), acquire(t, other)}
					link.Delay(time.Millisecond)
					ctx, giveUp := context.WithCancel(t.Context())
					over := suite.At(link, step, func() { giveUp(); link.Cut(); time.AfterFunc(time.Second, link.Heal) })

					errs := make(chan error, waiters)
					for i := range waiters {
						go func() {
							if i != quitter {
								errs <- s.Do(t.Context(), func(context.Context, *semaphore.Permit) error { return nil })
								return
							}
							s.Do(ctx, func(context.Context, *semaphore.Permit) error { return nil })
							errs <- nil
						}()
						time.Sleep(time.Microsecond) // they come in this order
					}
					time.Sleep(5 * time.Millisecond)
					release(t, held[1])
					for range waiters {
						require.NoError(t, <-errs, "step %d", step)
					}
					met = over()
					giveUp()
					link.Heal()
					time.Sleep(time.Minute)
					contenders(t, other, 1)
					release(t, held[0])
				})
				return met
			})
		})
	}
}
