package queue_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/queue"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// An offer to an empty queue wakes a few of the waiters in sessions of their own, however many
// there are.
func TestOfferWakesFewWaiters(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const consumers, offers = 20, 5
		srv := recipestest.Start(t, recipestest.WithInMemory())
		path := lasting(t, srv.Client(t), srv.Root(t)+"/q")
		producer := queue.New(srv.Client(t), path)
		link := srv.Link(t)
		var wait suite.Group
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

// A consumer that was woken, and has callers left that wait, watches the queue again.
func TestWaiterIsWokenAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		stage := suite.NewStage(t, 2)
		path := stage.Root(t) + "/q"
		consumer, producer := queue.New(stage.Clients[0], path), queue.New(stage.Clients[1], path)
		const n = 4
		taken := make(chan string, n)
		for range n {
			go func() {
				data, err := consumer.Take(t.Context())
				assert.NoError(t, err)
				taken <- string(data)
			}()
		}

		timeout := suite.Session(t, stage.Clients[0]).Timeout()
		for _, data := range []string{"a", "b", "c", "d"} {
			synctest.Wait() // it waits, again
			offered := time.Now()
			offer(t, producer, data)
			require.Equal(t, data, <-taken)
			require.Less(t, time.Since(offered), timeout/10, data)
		}
	})
}

// However the session and the network behave while the queue is empty, a waiter soon gets the next
// entry.
func TestWaitersAreNotStranded(t *testing.T) {
	for _, f := range slices.Concat(suite.QuickFaults, suite.SlowFaults(10*time.Second)) {
		t.Run(f.Name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				srv := recipestest.Start(t, recipestest.WithInMemory())
				path := lasting(t, srv.Client(t), srv.Root(t)+"/q")
				producer := queue.New(srv.Client(t), path)
				var wait suite.Group
				for range 3 {
					link := srv.Link(t)
					c := link.Client(t)
					q := queue.New(c, path)
					wait.Go(func() error { _, err := q.Take(t.Context()); return err })
					synctest.Wait()
					f.Do(srv, link, suite.Session(t, c).ID())
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

// Waiters leave nothing behind when they give up.
func TestCancelledWaitersLeaveNoNodes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := recipestest.Start(t, recipestest.WithInMemory())
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
		require.Empty(t, children(t, c, path+"/zkrecipes/waiting"))
		require.Equal(t, []string{"waiting"}, children(t, c, path+"/zkrecipes"))
		offer(t, q, "x")
		require.Equal(t, []string{"x"}, drain(t, t.Context(), q))
		time.Sleep(5 * time.Second)
		require.Equal(t, []string{"receipts", "waiting"}, children(t, c, path+"/zkrecipes"))
		require.Empty(t, children(t, c, path+"/zkrecipes/receipts"))
	})
}

// While consumers race, what one of them takes has few entries before it that are left. A single
// one keeps to the order.
func TestOrderIsRelaxedByFewEntries(t *testing.T) {
	for _, c := range []struct {
		consumers int
		long      bool // the queue, at first
	}{{1, true}, {2, true}, {3, true}, {4, true}, {8, true}, {2, false}, {4, false}, {8, false}} {
		consumers, long := c.consumers, c.long
		t.Run(fmt.Sprintf("%d long %t", consumers, long), func(t *testing.T) {
			suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
				path := lasting(t, srv.Client(t), srv.Root(t)+"/q")
				producer := queue.New(srv.Client(t), path)
				racers, _ := racers(t, srv, path, consumers)
				const n = 400
				var takes []taking
				for i := 0; i < n; {
					some := 3 * consumers
					if i == 0 && long {
						some = n / 2
					}
					_, err := producer.OfferAll(t.Context(), numbered(i, some))
					require.NoError(t, err)
					more, err := contest(t, racers, some/consumers)
					require.NoError(t, err)
					takes = append(takes, more...)
					i += some
				}
				for _, data := range drain(t, patient(t), producer) {
					takes = append(takes, taking{data, math.MaxInt64, math.MaxInt64})
				}
				requireOrder(t, takes, consumers)
			})
		})
	}
}

// Consumers that race for the entries of a long queue rarely collide, and read little more than
// they take. How often they collide depends on how fast each of them is. In virtual time all are
// alike, whatever the machine does. (Order and exclusion hold on real servers too:
// TestOrderIsRelaxedByFewEntries.)
func TestRacingConsumersRarelyCollide(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := recipestest.Start(t, recipestest.WithInMemory())
		const n, consumers = 1000, 4
		path := lasting(t, srv.Client(t), srv.Root(t)+"/q")
		_, err := queue.New(srv.Client(t), path).OfferAll(t.Context(), numbered(0, 2*n))
		require.NoError(t, err)
		racers, links := racers(t, srv, path, consumers)
		_, err = contest(t, racers, n/consumers)
		require.NoError(t, err)
		count := func(op recipestest.Op) (sum int) {
			for _, link := range links {
				sum += link.Count(op)
			}
			return sum
		}
		require.Less(t, count(recipestest.OpMulti), n*5/4)
		require.Less(t, count(recipestest.OpGetData), n*5/2)
		require.Less(t, count(recipestest.OpSetData), n/10)
		require.Less(t, count(recipestest.OpGetChildren), n/10)
	})
}

// The entry whose ticket belongs to a consumer that asks no more is soon taken by another consumer.
func TestEntriesOfASilentConsumerAreTaken(t *testing.T) {
	for _, consumers := range []int{2, 3} {
		t.Run(fmt.Sprint(consumers), func(t *testing.T) { oneStopsAsking(t, consumers) })
	}
}

func oneStopsAsking(t *testing.T, consumers int) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		const n, soon = 600, 80
		path := lasting(t, srv.Client(t), srv.Root(t)+"/q")
		producer := queue.New(srv.Client(t), path)
		racers, _ := racers(t, srv, path, consumers)
		_, err := producer.OfferAll(t.Context(), numbered(0, n))
		require.NoError(t, err)
		_, err = contest(t, racers, 50)
		require.NoError(t, err)
		takes, err := contest(t, racers[1:], 100)
		require.NoError(t, err)

		// The silent one may have a ticket that it does not use. The others find that entry when
		// they list the queue for the second time, a third of a session timeout after the first.
		behind := fmt.Sprintf("%06d", 50*consumers+100*(consumers-1)-soon)
		for {
			first, err := producer.Peek(suite.Lasting(t))
			require.NoError(t, err)
			if string(first) > behind {
				break
			}
			some, err := contest(t, racers[1:], 1)
			require.NoError(t, err)
			takes = append(takes, some...)
			time.Sleep(100 * time.Millisecond)
		}

		last := slices.MaxFunc(takes, func(a, b taking) int { return strings.Compare(a.data, b.data) })
		left := drain(t, patient(t), producer)
		before, found := slices.BinarySearch(left, last.data)
		require.False(t, found)
		if before > 0 {
			require.Greater(t, left[0], fmt.Sprintf("%06d", n-len(left)-soon))
		}
		require.Less(t, before, consumers)
	})
}

// An operator deletes the node of the tickets again and again.
func TestTicketNodeIsDeletedAgainAndAgain(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		const n, consumers = 400, 4
		operator := srv.Client(t)
		path := lasting(t, operator, srv.Root(t)+"/q")
		producer := queue.New(operator, path)
		racers, _ := racers(t, srv, path, consumers)
		conn := suite.Session(t, operator).Conn()
		deleted := 0
		var takes []taking
		for i := 0; deleted < 5; i++ {
			_, err := producer.OfferAll(t.Context(), numbered(i*n, n))
			require.NoError(t, err)
			over := make(chan error, 1)
			go func() {
				some, err := contest(t, racers, n/consumers)
				takes = append(takes, some...)
				over <- err
			}()
			for racing := true; racing; {
				select {
				case err := <-over:
					require.NoError(t, err)
					racing = false
				default:
					for _, name := range children(t, operator, path+"/zkrecipes") {
						if strings.HasPrefix(name, "tickets-") && conn.Delete(path+"/zkrecipes/"+name, -1) == nil {
							deleted++
						}
					}
				}
			}
			for _, data := range drain(t, patient(t), producer) {
				takes = append(takes, taking{data, math.MaxInt64, math.MaxInt64})
			}
			require.Len(t, takes, n*(i+1))
		}
		requireOrder(t, takes, consumers)
	})
}

// A taking is one of an entry, between two moments.
type taking struct {
	data         string
	began, ended int64
}

// racers are consumers in sessions of their own, behind a network that lets all of them get on
// alike.
func racers(t *testing.T, srv *recipestest.Server, path string, n int, opts ...protocol.ConnectOption) (all []*queue.Queue, links []*recipestest.Link) {
	for range n {
		link := srv.Link(t)
		all, links = append(all, queue.New(link.Client(t, opts...), path)), append(links, link)
		link.Delay(time.Millisecond / 2)
	}
	return all, links
}

// clock orders what happens in this process.
var clock atomic.Int64

// contest has each of them take so many entries, all at once.
func contest(t *testing.T, racers []*queue.Queue, each int) ([]taking, error) {
	takes := make([][]taking, len(racers))
	var wait suite.Group
	for i, q := range racers {
		wait.Go(func() error {
			for range each {
				began := clock.Add(1)
				data, err := q.Take(t.Context())
				if err != nil {
					return err
				}
				takes[i] = append(takes[i], taking{string(data), began, clock.Add(1)})
			}
			return nil
		})
	}
	err := wait.Wait()
	return slices.Concat(takes...), err
}

// requireOrder looks how many entries were surely left before one that was taken: those whose
// taking began later.
func requireOrder(t *testing.T, takes []taking, consumers int) {
	t.Helper()
	most := 4 * consumers // may be left before the one that is taken
	if consumers == 1 {
		most = 0
	}
	for _, x := range takes {
		left := 0
		for _, y := range takes {
			require.False(t, x.data == y.data && x != y, "twice")
			if y.data < x.data && y.began > x.ended {
				left++
			}
		}
		require.LessOrEqual(t, left, most, "before %s", x.data)
	}
}

// Entries that no consumer looks after, because the one that should is gone, are found by a listing
// while tickets go on.
func TestSkippedEntriesAreFound(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		const consumers = 4
		path := lasting(t, srv.Client(t), srv.Root(t)+"/q")
		producer := queue.New(srv.Client(t), path)
		racers, _ := racers(t, srv, path, consumers, protocol.WithSessionTimeout(4*time.Second))
		found, each := false, 150/consumers // so some are left
		for round, deadline := 0, time.Now().Add(suite.Limit); !found; round++ {
			require.True(t, time.Now().Before(deadline), "it was left behind")
			_, err := producer.OfferAll(t.Context(), numbered(200*round, 200))
			require.NoError(t, err)
			takes, err := contest(t, racers, each)
			each = 200 / consumers
			require.NoError(t, err)
			found = slices.ContainsFunc(takes, func(x taking) bool { return x.data == "behind" })
			if round == 0 {
				// Its name is new: a consumer may have read a former entry of the same name.
				conn := suite.Session(t, srv.Client(t)).Conn()
				_, err := conn.Create(path+"/qn-0000000000", []byte("behind"), 0, zk.WorldACL(zk.PermAll))
				require.NoError(t, err)
			}
		}
		drain(t, patient(t), producer)
	})
}
