package queue_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/recipetest"
	"github.com/zkrecipes/zkrecipes/queue"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// An offer to an empty queue wakes a few of those who wait in sessions of their own, however many there are.
func TestOfferWakesFew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const consumers, offers = 20, 5
		srv := recipestest.Start(t, recipestest.InMemory())
		path := lasting(t, srv.Client(t), srv.Root(t)+"/q")
		producer := queue.New(srv.Client(t), path)
		link := srv.Link(t)
		var wait recipetest.Group
		for range consumers {
			q := queue.New(link.Client(t), path)
			wait.Go(func() error { _, err := q.Take(t.Context()); return err })
		}
		count := func() (requests int) {
			synctest.Wait()
			for _, op := range []recipestest.Op{recipestest.OpGetChildren, recipestest.OpMulti, recipestest.OpGetData} {
				requests += link.Count(op)
			}
			return requests
		}
		requests, events := count(), link.Events()
		for range offers {
			offer(t, producer, "x")
			synctest.Wait()
		}
		const fewEvents, fewRequests = 8, 24 // far below the number of consumers times anything
		require.LessOrEqual(t, link.Events()-events, offers*fewEvents)
		require.LessOrEqual(t, count()-requests, offers*fewRequests)
		for range consumers - offers {
			offer(t, producer, "x")
		}
		require.NoError(t, wait.Wait())
	})
}

// However the session and the network behave while nobody offers anything, who waits hears of the next offer soon.
func TestWaitersAreNotStranded(t *testing.T) {
	for _, f := range slices.Concat(recipetest.QuickFaults, recipetest.SlowFaults(10*time.Second)) {
		t.Run(f.Name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				srv := recipestest.Start(t, recipestest.InMemory())
				path := lasting(t, srv.Client(t), srv.Root(t)+"/q")
				producer := queue.New(srv.Client(t), path)
				var wait recipetest.Group
				for range 3 {
					link := srv.Link(t)
					c := link.Client(t)
					q := queue.New(c, path)
					wait.Go(func() error { _, err := q.Take(t.Context()); return err })
					synctest.Wait()
					f.Do(srv, link, recipetest.Session(t, c).ID())
				}
				time.Sleep(time.Second)
				offer(t, producer, "a", "b", "c")
				time.Sleep(time.Minute)
				synctest.Wait()
				n, err := producer.Len(t.Context())
				require.NoError(t, err)
				require.Zero(t, n)
				require.NoError(t, wait.Wait())
			})
		})
	}
}

// Those who wait leave nothing behind when they give up.
func TestGivenUpWaitsLeaveNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := recipestest.Start(t, recipestest.InMemory())
		c := srv.Client(t)
		path := lasting(t, c, srv.Root(t)+"/q")
		q := queue.New(c, path)
		for range 100 {
			ctx, cancel := contextFor(t, time.Millisecond)
			_, err := q.Take(ctx)
			require.ErrorIs(t, err, ctx.Err())
			_, err = q.Reserve(ctx)
			require.ErrorIs(t, err, ctx.Err())
			cancel()
		}
		time.Sleep(5 * time.Second)
		require.Empty(t, children(t, c, path+"-waiting"))
		require.Empty(t, children(t, c, path+"-receipts"))
		offer(t, q, "x")
		require.Equal(t, []string{"x"}, drain(t, t.Context(), q))
		time.Sleep(5 * time.Second)
		require.Empty(t, children(t, c, path+"-receipts"))
	})
}

// While consumers race no element is overtaken by as many as there are consumers.
func TestOrderIsRelaxedByLessThanTheConsumers(t *testing.T) {
	t.Parallel()
	for _, consumers := range []int{1, 2, 3, 4, 8} {
		t.Run(fmt.Sprint(consumers), func(t *testing.T) {
			t.Parallel()
			srv := recipestest.Start(t)
			path := lasting(t, srv.Client(t), srv.Root(t)+"/q")
			producer := queue.New(srv.Client(t), path)
			const n = 400
			_, err := producer.OfferAll(t.Context(), numbered(0, n))
			require.NoError(t, err)
			var mu sync.Mutex
			took := make(map[string]int)
			sequences := make([][]string, consumers)
			var wait recipetest.Group
			for i := range consumers {
				q := queue.New(srv.Client(t), path)
				wait.Go(func() error {
					for range n / consumers {
						data, err := q.Take(t.Context())
						if err != nil {
							return err
						}
						mu.Lock()
						took[string(data)] = i
						sequences[i] = append(sequences[i], string(data))
						mu.Unlock()
					}
					return nil
				})
			}
			require.NoError(t, wait.Wait())
			require.Len(t, took, n/consumers*consumers)
			// What one consumer has taken is in order but for the width of a block.
			for _, s := range sequences {
				for i := range s {
					overtaken := 0
					for _, earlier := range s[:i] {
						if earlier > s[i] {
							overtaken++
						}
					}
					require.Less(t, overtaken, consumers)
				}
			}
		})
	}
}
