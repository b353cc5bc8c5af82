package queue_test

// What a review of the second design has found, by exact counts in virtual time.

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/queue"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// Keys are remembered for an hour and then deleted, however many are offered.
func TestReviewQKeysGrowWithoutEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := recipestest.Start(t, recipestest.WithInMemory())
		c := srv.Client(t)
		path := lasting(t, c, srv.Root(t)+"/q")
		q := queue.New(c, path)
		conn := suite.Session(t, c).Conn()
		offerKey := func(key string) string {
			id, err := q.OfferKey(t.Context(), key, []byte("x"))
			require.NoError(t, err)
			return id
		}
		const perMinute = 50
		most := 0
		for minute := range 300 {
			for i := range perMinute {
				offerKey(fmt.Sprint(minute, ".", i))
			}
			_, err := q.PollN(t.Context(), 1000)
			require.NoError(t, err)
			require.Empty(t, offerKey(fmt.Sprint(max(0, minute-59), ".0")), "a key of the last hour")
			time.Sleep(time.Minute)
			keys := 0
			for _, dir := range children(t, c, path+"/zkrecipes/keys") {
				_, stat, err := conn.Exists(path + "/zkrecipes/keys/" + dir)
				require.NoError(t, err)
				keys += int(stat.NumChildren)
			}
			most = max(most, keys)
		}
		require.LessOrEqual(t, most, 2*61*perMinute, "keys of more than two hours")
	})
}

// What is reserved takes nothing of the bytes that the ephemeral nodes of a session may have.
func TestReviewQBudgetIsPerView(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := recipestest.Start(t, recipestest.WithInMemory())
		client := srv.Client(t)
		path := lasting(t, client, srv.Root(t)+"/"+strings.Repeat("q", 150))
		for range 3 {
			q := queue.New(client.With(), path)
			fill(t, q, 1000)
			for range 1000 {
				it, err := q.TryReserve(t.Context())
				require.NoError(t, err)
				defer it.Ack(t.Context())
			}
		}
		require.Less(t, suite.Session(t, client).EphemeralBytes(), 5000)
	})
}

// kazoo's producers do not write to the register. So a consumer that has listed the queue hears
// nothing of an urgent entry before it has taken all that it has listed.
func TestReviewQUrgentEntryOfKazoo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := recipestest.Start(t, recipestest.WithInMemory())
		client := srv.Client(t)
		path := lasting(t, client, srv.Root(t)+"/q")
		q := queue.New(client, path, queue.WithPriorities())
		const backlog = 2000
		fill(t, q, backlog)
		_, err := q.Poll(t.Context())
		require.NoError(t, err)

		// as kazoo's Queue.put(value, priority=1)
		_, err = srv.Conn(t).Create(path+"/entry-001-", []byte("urgent"), zk.FlagSequence, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
		for i := range backlog {
			time.Sleep(100 * time.Millisecond)
			data, err := q.Poll(t.Context())
			require.NoError(t, err)
			if string(data) == "urgent" {
				require.LessOrEqual(t, i, 2, "that many entries of priority 100 came first, over %v", time.Duration(i)*100*time.Millisecond)
				return
			}
		}
		t.Fatal("never")
	})
}

// with priorities, or beside delayed entries, each entry costs listings of the whole queue.
func TestReviewQListingsForEachEntry(t *testing.T) {
	for _, c := range []struct {
		name             string
		opts             []queue.Option
		entries, delayed int
		sessions         int
	}{
		{"plain, 1 session", nil, 10000, 0, 1},
		{"plain, 2 sessions", nil, 10000, 0, 2},
		{"priorities, 1 session", []queue.Option{queue.WithPriorities()}, 10000, 0, 1},
		{"priorities, 2 sessions", []queue.Option{queue.WithPriorities()}, 10000, 0, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := recipestest.Start(t, recipestest.WithInMemory())
				path := lasting(t, srv.Client(t), srv.Root(t)+"/q")
				fill(t, queue.New(srv.Client(t), path, c.opts...), c.entries)
				var links []*recipestest.Link
				var wait suite.Group
				for range c.sessions {
					link := srv.Link(t)
					link.Delay(time.Millisecond)
					links = append(links, link)
					q := queue.New(link.Client(t), path, c.opts...)
					wait.Go(func() error {
						for range 100 {
							if _, err := q.Poll(t.Context()); err != nil {
								return err
							}
						}
						return nil
					})
				}
				require.NoError(t, wait.Wait())
				var bytes int64
				lists := 0
				for _, l := range links {
					bytes += l.ReplyBytes()
					lists += l.Count(recipestest.OpGetChildren)
				}
				n := 100 * c.sessions
				require.Less(t, float64(lists)/float64(n), 0.5)
			})
		})
	}
}

// an offer to a queue with many delayed entries makes lookouts list all of them.
func TestReviewQDelayedEntriesAreListedForEachEntry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const delayed, n = 5000, 20
		srv := recipestest.Start(t, recipestest.WithInMemory())
		path := lasting(t, srv.Client(t), srv.Root(t)+"/q")
		producer := queue.New(srv.Client(t), path)
		for range delayed / 100 {
			var wait suite.Group
			for range 100 {
				wait.Go(func() error { _, err := producer.OfferAfter(t.Context(), 24*time.Hour, []byte("x")); return err })
			}
			require.NoError(t, wait.Wait())
		}
		var links []*recipestest.Link
		ctx, stop := context.WithCancel(t.Context())
		var wait suite.Group
		got := make(chan string)
		for range 4 {
			link := srv.Link(t)
			links = append(links, link)
			q := queue.New(link.Client(t), path)
			wait.Go(func() error {
				for {
					data, err := q.Take(ctx)
					if ctx.Err() != nil {
						return nil
					} else if err != nil {
						return err
					}
					got <- string(data)
				}
			})
		}
		time.Sleep(10 * time.Second)
		var before int64
		for _, l := range links {
			before += l.ReplyBytes()
		}
		for range n {
			offer(t, producer, "now")
			require.Equal(t, "now", <-got)
			time.Sleep(time.Second)
		}
		var bytes int64
		for _, l := range links {
			bytes += l.ReplyBytes()
		}
		stop()
		require.NoError(t, wait.Wait())
		require.Less(t, (bytes-before)/n, int64(100_000))
		drainAll(t, srv, path)
	})
}

func drainAll(t *testing.T, srv *recipestest.Server, path string) {
	conn := srv.Conn(t)
	kids, _, err := conn.Children(path)
	require.NoError(t, err)
	for _, k := range kids {
		if k != "zkrecipes" {
			require.NoError(t, conn.Delete(path+"/"+k, -1))
		}
	}
}

// offers with a priority write to the register. So a consumer that holds many items asks for each
// of them again at each reservation.
func TestReviewQHeldItemsAreAskedForAgainAndAgain(t *testing.T) {
	for name, opts := range map[string][]queue.Option{"plain": nil, "priorities": {queue.WithPriorities()}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const holds, n = 1000, 50
				srv := recipestest.Start(t, recipestest.WithInMemory())
				path := lasting(t, srv.Client(t), srv.Root(t)+"/q")
				producer := queue.New(srv.Client(t), path, opts...)
				fill(t, producer, holds)
				link := srv.Link(t)
				q := queue.New(link.Client(t), path, opts...)
				var items []*queue.Item
				for range holds {
					it, err := q.TryReserve(t.Context())
					require.NoError(t, err)
					items = append(items, it)
				}
				before := link.Count(recipestest.OpAny)
				for range n {
					offer(t, producer, "a", "b")
					it, err := q.TryReserve(t.Context())
					require.NoError(t, err)
					items = append(items, it)
				}
				each := (link.Count(recipestest.OpAny) - before) / n
				for _, it := range items {
					require.NoError(t, it.Ack(t.Context()))
				}
				require.Less(t, each, 20)
			})
		})
	}
}

// the same for items that are given back by others.
func TestReviewQNacksMakeAllHeldItemsBeAskedForAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const holds, n = 1000, 50
		srv := recipestest.Start(t, recipestest.WithInMemory())
		path := lasting(t, srv.Client(t), srv.Root(t)+"/q")
		producer := queue.New(srv.Client(t), path)
		fill(t, producer, holds+200)
		link := srv.Link(t)
		q, other := queue.New(link.Client(t), path), queue.New(srv.Client(t), path)
		var items []*queue.Item
		for range holds {
			it, err := q.TryReserve(t.Context())
			require.NoError(t, err)
			items = append(items, it)
		}
		before := link.Count(recipestest.OpAny)
		for range n {
			a, err := other.TryReserve(t.Context())
			require.NoError(t, err)
			b, err := other.TryReserve(t.Context())
			require.NoError(t, err)
			require.NoError(t, a.Nack(t.Context()))
			require.NoError(t, b.Nack(t.Context()))
			it, err := q.TryReserve(t.Context())
			require.NoError(t, err)
			items = append(items, it)
		}
		each := (link.Count(recipestest.OpAny) - before) / n
		for _, it := range items {
			require.NoError(t, it.Ack(t.Context()))
		}
		require.Less(t, each, 20)
	})
}

// the two that have waited longest crash, or a switch cuts off the rack in which they are. The
// others wait on beside an entry until the sessions of both have expired.
func TestReviewQTwoDeadLookoutsStopAllOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := recipestest.Start(t, recipestest.WithInMemory())
		path := lasting(t, srv.Client(t), srv.Root(t)+"/q")
		ctx, stop := context.WithCancel(t.Context())
		var wait suite.Group
		got := make(chan int, 10)
		var links []*recipestest.Link
		for i := range 10 {
			link := srv.Link(t)
			links = append(links, link)
			q := queue.New(link.Client(t), path)
			wait.Go(func() error {
				if _, err := q.Take(ctx); err == nil {
					got <- i
				}
				return nil
			})
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(10 * time.Second)
		links[0].Stall()
		links[1].Stall()
		began := time.Now()
		offer(t, queue.New(srv.Client(t), path), "x")
		<-got
		require.Less(t, time.Since(began), time.Second)
		stop()
		links[0].Heal()
		links[1].Heal()
		require.NoError(t, wait.Wait())
	})
}

// consuming sessions that are equally busy get between half and twice an equal share.
func TestReviewQFarConsumerThatWaits(t *testing.T) {
	for _, far := range []time.Duration{2 * time.Millisecond, 10 * time.Millisecond} {
		t.Run(far.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := recipestest.Start(t, recipestest.WithInMemory())
				path := lasting(t, srv.Client(t), srv.Root(t)+"/q")
				ctx, stop := context.WithCancel(t.Context())
				var wait suite.Group
				shares := make([]int, 3)
				for i, d := range []time.Duration{time.Millisecond, time.Millisecond, far} {
					link := srv.Link(t)
					link.Delay(d)
					q := queue.New(link.Client(t), path)
					wait.Go(func() error {
						for {
							if _, err := q.Take(ctx); err != nil {
								return nil
							}
							shares[i]++
						}
					})
				}
				time.Sleep(time.Second)
				producer := queue.New(srv.Client(t), path)
				for range 300 {
					offer(t, producer, "x")
					time.Sleep(100 * time.Millisecond)
				}
				stop()
				require.NoError(t, wait.Wait())
				require.Greater(t, shares[2], 300/3/2)
			})
		})
	}
}

// a lookout that waits beside an entry with a delay keeps a timer for each consumer that comes or
// goes meanwhile.
func TestReviewQTimersOfALookout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := recipestest.Start(t, recipestest.WithInMemory())
		path := lasting(t, srv.Client(t), srv.Root(t)+"/q")
		producer := queue.New(srv.Client(t), path)
		_, err := producer.OfferAfter(t.Context(), 100*time.Hour, []byte("later"))
		require.NoError(t, err)
		ctx, stop := context.WithCancel(t.Context())
		var wait suite.Group
		q := queue.New(srv.Client(t), path)
		wait.Go(func() error { q.Take(ctx); return nil })
		time.Sleep(time.Second)
		other := queue.New(srv.Client(t), path)
		heap := func() int64 {
			runtime.GC()
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			return int64(m.HeapAlloc)
		}
		work := func(n int) {
			for range n {
				_, err := other.Poll(t.Context())
				require.ErrorIs(t, err, queue.ErrEmpty)
				time.Sleep(3 * time.Second) // its receipt goes meanwhile
			}
		}
		work(500)
		before := heap()
		const polls = 3000
		work(polls)
		grown := heap() - before
		stop()
		require.NoError(t, wait.Wait())
		require.Less(t, grown/polls, int64(100))
		drainAll(t, srv, path)
	})
}

// an entry of OfferAfter is not delivered before the delay has passed, by this process's clock.
func TestReviewQOfferAfterIsEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := recipestest.Start(t, recipestest.WithInMemory())
		path := lasting(t, srv.Client(t), srv.Root(t)+"/q")
		q := queue.New(srv.Client(t), path)
		got := suite.Later(func() time.Time { q.Take(t.Context()); return time.Now() })
		time.Sleep(time.Second + 900*time.Microsecond)
		began := time.Now()
		_, err := q.OfferAfter(t.Context(), time.Second, []byte("x"))
		require.NoError(t, err)
		require.GreaterOrEqual(t, (<-got).Sub(began), time.Second)
	})
}

// what a Poll of an empty queue costs, of a client that polls every two seconds.
func TestReviewQIdlePolls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := recipestest.Start(t, recipestest.WithInMemory())
		path := lasting(t, srv.Client(t), srv.Root(t)+"/q")
		offer(t, queue.New(srv.Client(t), path), "x")
		_, err := queue.New(srv.Client(t), path).Poll(t.Context())
		require.NoError(t, err)
		time.Sleep(10 * time.Second)
		link := srv.Link(t)
		q := queue.New(link.Client(t), path)
		for range 3 {
			q.Poll(t.Context())
			time.Sleep(2 * time.Second)
		}
		const n = 100
		w := 0
		for _, op := range []recipestest.Op{recipestest.OpCreate, recipestest.OpDelete, recipestest.OpMulti, recipestest.OpSetData} {
			w -= link.Count(op)
		}
		for range n {
			_, err := q.Poll(t.Context())
			require.ErrorIs(t, err, queue.ErrEmpty)
			time.Sleep(2 * time.Second)
		}
		for _, op := range []recipestest.Op{recipestest.OpCreate, recipestest.OpDelete, recipestest.OpMulti, recipestest.OpSetData} {
			w += link.Count(op)
		}
		require.Less(t, w, n/2)
	})
}

// ErrEmpty is true. An operator has deleted a claim, and its consumer is cut off.
func TestReviewQErrEmptyAfterAClaimWasDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := recipestest.Start(t, recipestest.WithInMemory())
		path := lasting(t, srv.Client(t), srv.Root(t)+"/q")
		offer(t, queue.New(srv.Client(t), path), "x")
		link := srv.Link(t)
		holder, q := queue.New(link.Client(t), path), queue.New(srv.Client(t), path)
		it, err := holder.Reserve(t.Context())
		require.NoError(t, err)
		_, err = q.Poll(t.Context())
		require.ErrorIs(t, err, queue.ErrEmpty)
		link.Stall()
		require.NoError(t, q.Free(t.Context(), it.ID()))
		began := time.Now()
		for {
			_, err = q.Poll(t.Context())
			if err == nil {
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
		link.Heal()
		require.Less(t, time.Since(began), time.Second)
	})
}

// an OfferWait at a full queue.
func TestReviewQOfferWaitIsNotQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := recipestest.Start(t, recipestest.WithInMemory())
		path := lasting(t, srv.Client(t), srv.Root(t)+"/q")
		link := srv.Link(t)
		q := queue.New(link.Client(t), path, queue.WithMaxLength(1))
		offer(t, q, "x")
		ctx, stop := context.WithCancel(t.Context())
		over := suite.Later(func() error { _, err := q.OfferWait(ctx, []byte("y")); return err })
		time.Sleep(time.Minute)
		all := link.Count(recipestest.OpAny)
		w := 0
		ops := []recipestest.Op{recipestest.OpCreate, recipestest.OpDelete, recipestest.OpMulti, recipestest.OpSetData}
		for _, op := range ops {
			w -= link.Count(op)
		}
		time.Sleep(10 * time.Minute)
		for _, op := range ops {
			w += link.Count(op)
		}
		stop()
		<-over
		require.Less(t, all/10, 20)
		drainAll(t, srv, path)
	})
}

// the same as K12 while another session waits, so that the records are there.
func TestReviewQIdlePollsBesideAWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := recipestest.Start(t, recipestest.WithInMemory())
		path := lasting(t, srv.Client(t), srv.Root(t)+"/q")
		ctx, stop := context.WithCancel(t.Context())
		waiter := srv.Link(t)
		wq := queue.New(waiter.Client(t), path)
		over := suite.Later(func() error { _, err := wq.Take(ctx); return err })
		time.Sleep(5 * time.Second)
		link := srv.Link(t)
		q := queue.New(link.Client(t), path)
		q.Poll(t.Context())
		time.Sleep(2 * time.Second)
		const n = 100
		ops := []recipestest.Op{recipestest.OpCreate, recipestest.OpDelete, recipestest.OpMulti, recipestest.OpSetData}
		w := 0
		for _, op := range ops {
			w -= link.Count(op)
		}
		for range n {
			_, err := q.Poll(t.Context())
			require.ErrorIs(t, err, queue.ErrEmpty)
			time.Sleep(2 * time.Second)
		}
		for _, op := range ops {
			w += link.Count(op)
		}
		stop()
		<-over
		require.Less(t, w, n)
	})
}

// "Order: exact with a single consuming session." The deletion of the session's idle receipt is
// late, as in an outage of a moment. The next call creates the next receipt, and takes the old one
// for another consumer. (The simulator finds it without the refusal: TestSimQueueOrder
// -sim.seed=254984512, TestSimQueueIsAQueue -sim.seed=3014632414.)
func TestReviewQOrderOfASingleSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := recipestest.Start(t, recipestest.WithInMemory())
		path := lasting(t, srv.Client(t), srv.Root(t)+"/q")
		fill(t, queue.New(srv.Client(t), path), 4)
		link := srv.Link(t)
		q := queue.New(link.Client(t), path)
		_, err := q.Poll(t.Context())
		require.NoError(t, err)
		consumer := children(t, srv.Client(t), path+"/zkrecipes/consumers")[0]
		link.Fail(recipestest.OpDelete, path+"/zkrecipes/consumers/"+consumer, -4, 2) // connection loss
		time.Sleep(time.Second + time.Millisecond)
		var got []string
		for range 3 {
			data, err := q.Poll(t.Context())
			require.NoError(t, err)
			got = append(got, string(data))
		}
		drain(t, t.Context(), q)
		require.Equal(t, []string{"000001", "000002", "000003"}, got)
	})
}
