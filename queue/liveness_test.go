package queue_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
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

// soon is far less than what a consumer waits that looks from time to time only.
const soon = time.Second

// waiting has a consumer wait in Take, in a session of its own, and returns what it gets.
func waiting(t *testing.T, c *protocol.Client, path string) <-chan string {
	t.Helper()
	got := make(chan string, 1)
	var wait suite.Group
	wait.Go(func() error {
		data, err := queue.New(c, path).Take(t.Context())
		if t.Context().Err() != nil {
			return nil
		}
		got <- string(data)
		return err
	})
	t.Cleanup(func() { require.NoError(t, wait.Wait()) })
	time.Sleep(10 * time.Second)
	synctest.Wait()
	return got
}

// gets requires that the waiting consumer gets the next entry soon.
func getsSoon(t *testing.T, got <-chan string, want string) {
	t.Helper()
	began := time.Now()
	select {
	case data := <-got:
		require.Equal(t, want, data)
		require.LessOrEqual(t, time.Since(began), soon)
	case <-time.After(10 * time.Minute):
		t.Fatal("the consumer was not woken")
	}
}

// A consumer whose place in line was deleted by an operator takes another one.
func TestConsumerStandsInLineAgain(t *testing.T) {
	for _, what := range []string{"/zkrecipes/waiting", "/zkrecipes", ""} {
		t.Run("without "+what, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				srv := recipestest.Start(t, recipestest.WithInMemory())
				operator := srv.Client(t)
				path := lasting(t, operator, srv.Root(t)+"/q")
				link := srv.Link(t)
				got := waiting(t, link.Client(t), path)

				deleteAll(t, suite.Session(t, operator).Conn(), path+what)
				time.Sleep(10 * time.Second)
				synctest.Wait()
				require.LessOrEqual(t, link.Count(recipestest.OpAny), 200)
				offer(t, queue.New(operator, path), "x")
				getsSoon(t, got, "x")
			})
		})
	}
}

func deleteAll(t *testing.T, conn *zk.Conn, node string) {
	t.Helper()
	for range 100 {
		children, _, err := conn.Children(node)
		if err != nil {
			require.ErrorIs(t, err, zk.ErrNoNode)
			return
		}
		for _, child := range children {
			deleteAll(t, conn, node+"/"+child)
		}
		if err := conn.Delete(node, -1); err == nil || err == zk.ErrNoNode {
			return
		}
	}
}

// Foreign nodes beside the consumers that wait do not keep them from being woken.
func TestForeignNodesAreNotInLine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := recipestest.Start(t, recipestest.WithInMemory())
		operator := srv.Client(t)
		path := lasting(t, operator, srv.Root(t)+"/q")
		s := suite.Session(t, operator)
		_, err := s.EnsurePath(t.Context(), path+"/zkrecipes/waiting")
		require.NoError(t, err)
		for _, name := range []string{"README", "a-0000000000", "b-0000000000"} {
			_, err := s.Conn().Create(path+"/zkrecipes/waiting/"+name, nil, 0, zk.WorldACL(zk.PermAll))
			require.NoError(t, err)
		}
		got := waiting(t, srv.Client(t), path)
		offer(t, queue.New(operator, path), "x")
		getsSoon(t, got, "x")
	})
}

// An ephemeral entry, which cannot be reserved, is taken although a reservation waits before.
func TestEphemeralEntryIsTakenBesideAReservation(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := recipestest.Start(t, recipestest.WithInMemory())
		operator, c := srv.Client(t), srv.Client(t)
		path := lasting(t, operator, srv.Root(t)+"/q")
		q := queue.New(c, path)
		ctx, cancel := context.WithCancel(t.Context())
		var wait suite.Group
		wait.Go(func() error { _, err := q.Reserve(ctx); require.ErrorIs(t, err, context.Canceled); return nil })
		time.Sleep(time.Second)
		got := make(chan string, 1)
		wait.Go(func() error { data, err := q.Take(ctx); got <- string(data); return err })
		time.Sleep(time.Second)
		_, err := suite.Session(t, operator).Conn().Create(path+"/qn-", []byte("x"), zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
		getsSoon(t, got, "x")
		cancel()
		require.NoError(t, wait.Wait())
	})
}

// A call that was refused does not harm the next one.
func TestCallAfterARefusal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := recipestest.Start(t, recipestest.WithInMemory())
		operator := srv.Client(t)
		path := lasting(t, operator, srv.Root(t)+"/q")
		offer(t, queue.New(operator, path), "x")
		conn := suite.Session(t, operator).Conn()
		_, err := conn.SetACL(path, zk.WorldACL(zk.PermAll&^zk.PermDelete), -1)
		require.NoError(t, err)
		q := queue.New(srv.Client(t), path)
		for range 3 {
			_, err = q.Poll(t.Context())
			require.ErrorIs(t, err, zk.ErrNoAuth)
		}
		_, err = conn.SetACL(path, zk.WorldACL(zk.PermAll), -1)
		require.NoError(t, err)
		data, err := q.Poll(t.Context())
		require.NoError(t, err)
		require.Equal(t, "x", string(data))
	})
}

// The first entry is taken although a session with a better rank only holds its item.
func TestFirstEntryOfAShortQueueIsTaken(t *testing.T) {
	for range 4 {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				srv := recipestest.Start(t, recipestest.WithInMemory())
				operator := srv.Client(t)
				path := lasting(t, operator, srv.Root(t)+"/q")
				producer := queue.New(operator, path)
				offer(t, producer, "held")
				it := reserve(t, queue.New(srv.Client(t), path))
				q := queue.New(srv.Client(t), path)
				_, err := q.Poll(t.Context())
				require.ErrorIs(t, err, queue.ErrEmpty)
				offer(t, producer, "first", "a")
				began := time.Now()
				for i := 0; ; i++ {
					data, err := q.Take(t.Context())
					require.NoError(t, err)
					if string(data) == "first" {
						break
					}
					require.Less(t, time.Since(began), time.Minute, "%d entries were taken before", i)
					offer(t, producer, fmt.Sprint(i))
					time.Sleep(10 * time.Millisecond)
				}
				t.Log(time.Since(began))
				require.NoError(t, it.Nack(t.Context()))
			})
		})
	}
}

// A session that polls now and then, beside one that only holds an item, passes no entry over for
// long. What it has read of the queue is out of date each time.
func TestSessionThatPollsNowAndThen(t *testing.T) {
	const interval, polls = 1500 * time.Millisecond, 40
	const behind = 5 // fewer than polls in a third of the session timeout, and some
	for name, c := range map[string]struct {
		options []queue.Option
		prepare func(t *testing.T, producer, holder, q *queue.Queue) (held *queue.Item, first int)
	}{
		"with tickets": {nil, func(t *testing.T, producer, holder, q *queue.Queue) (*queue.Item, int) {
			fill(t, producer, 2*polls)
			own := reserve(t, q)
			held := reserve(t, holder) // which draws, as there are two
			require.NoError(t, own.Ack(t.Context()))
			return held, 2
		}},
		"by rank": {[]queue.Option{queue.WithPriorities()}, func(t *testing.T, producer, holder, q *queue.Queue) (*queue.Item, int) {
			_, err := producer.OfferPriority(t.Context(), 999, []byte("last"))
			require.NoError(t, err)
			held := reserve(t, holder) // and so it is not among the first
			fill(t, producer, 2*polls)
			return held, 0
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				srv := recipestest.Start(t, recipestest.WithInMemory())
				operator := srv.Client(t)
				path := lasting(t, operator, srv.Root(t)+"/q")
				producer := queue.New(operator, path, c.options...)
				q := queue.New(srv.Client(t), path, c.options...)
				holder := queue.New(srv.Client(t), path, c.options...)
				held, first := c.prepare(t, producer, holder, q)

				var order []string
				for range polls {
					time.Sleep(interval)
					data, err := q.Poll(t.Context())
					require.NoError(t, err)
					order = append(order, string(data))
				}
				t.Log(order)
				for i := range polls - behind {
					require.Contains(t, order[:i+behind], fmt.Sprintf("%06d", first+i))
				}
				require.NoError(t, held.Ack(t.Context()))
			})
		})
	}
}

// What has been acknowledged is not asked for again.
func TestAcknowledgedEntriesAreNotCheckedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const n = 1000
		srv := recipestest.Start(t, recipestest.WithInMemory())
		path := lasting(t, srv.Client(t), srv.Root(t)+"/q")
		fill(t, queue.New(srv.Client(t), path), n)
		link := srv.Link(t)
		q := queue.New(link.Client(t), path)
		link.Delay(time.Millisecond)
		ctx, cancel := context.WithCancel(t.Context())
		done := 0
		acked := make(chan bool)
		go func() {
			for range acked {
				if done++; done == n {
					cancel()
				}
			}
		}()
		err := q.Consume(ctx, 8, func(_ context.Context, it *queue.Item) error {
			if it.Attempt() == 1 && strings.HasSuffix(string(it.Data()[:5]), "7") {
				return fmt.Errorf("not yet")
			}
			acked <- true
			return nil
		})
		require.ErrorIs(t, err, context.Canceled)
		close(acked)
		t.Log("Exists:", link.Count(recipestest.OpExists), "GetData:", link.Count(recipestest.OpGetData), "GetChildren", link.Count(recipestest.OpGetChildren))
		require.LessOrEqual(t, link.Count(recipestest.OpExists), n)
	})
}

// An entry that comes due wakes two sessions.
func TestDueEntryWakesTwoSessions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := recipestest.Start(t, recipestest.WithInMemory())
		path := lasting(t, srv.Client(t), srv.Root(t)+"/q")
		producer := queue.New(srv.Client(t), path)
		_, err := producer.OfferAfter(t.Context(), time.Minute, []byte("x"))
		require.NoError(t, err)
		c := newCrowd(t, srv, path, 50)
		lists := c.count(recipestest.OpGetChildren)
		began := time.Now()
		time.Sleep(30 * time.Second)
		require.Equal(t, "x", <-c.got)
		waited := time.Since(began)
		time.Sleep(time.Second)
		t.Log("after", waited, "listings:", c.count(recipestest.OpGetChildren)-lists)
		require.LessOrEqual(t, c.count(recipestest.OpGetChildren)-lists, 20)
		require.LessOrEqual(t, waited, 41*time.Second)
	})
}

// When one of the two lookouts gives up, another one takes its place.
func TestThereAreTwoLookouts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := recipestest.Start(t, recipestest.WithInMemory())
		path := lasting(t, srv.Client(t), srv.Root(t)+"/q")
		var links []*recipestest.Link
		var cancels []context.CancelFunc
		got := make(chan string, 3)
		for range 3 {
			ctx, cancel := context.WithCancel(t.Context())
			link := srv.Link(t)
			q := queue.New(link.Client(t), path)
			links, cancels = append(links, link), append(cancels, cancel)
			go func() {
				if data, err := q.Take(ctx); err == nil {
					got <- string(data)
				}
			}()
			time.Sleep(time.Second)
		}
		cancels[1]()
		time.Sleep(10 * time.Second)
		links[0].Stall()
		offer(t, queue.New(srv.Client(t), path), "x")
		getsSoon(t, got, "x")
		links[0].Heal()
		cancels[0]()
		cancels[2]()
	})
}

// Waiters come and go, lookouts lose their places, and each offer is taken soon.
func TestWaitersComeAndGo(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := rand.New(rand.NewPCG(seed, 1))
				srv := recipestest.Start(t, recipestest.WithInMemory())
				operator := srv.Client(t)
				path := lasting(t, operator, srv.Root(t)+"/q")
				conn := suite.Session(t, operator).Conn()
				var mu sync.Mutex
				asking := 0
				got := make(chan string, 1000)
				ctx, cancel := context.WithCancel(t.Context())
				var wait sync.WaitGroup
				for i := range 6 {
					link := srv.Link(t)
					c := link.Client(t)
					q := queue.New(c, path)
					rr := rand.New(rand.NewPCG(seed, uint64(i)+2))
					if seed%3 == 0 {
						link.Delay(time.Duration(rr.IntN(20)) * time.Millisecond)
					}
					wait.Go(func() {
						for ctx.Err() == nil {
							d := time.Duration(rr.IntN(3000)) * time.Millisecond
							if i == 0 {
								d = time.Hour
							}
							one, stop := context.WithTimeout(ctx, d)
							mu.Lock()
							asking++
							mu.Unlock()
							var err error
							var data []byte
							if rr.IntN(2) == 0 {
								data, err = q.Take(one)
							} else {
								var it *queue.Item
								if it, err = q.Reserve(one); err == nil {
									data = it.Data()
									if rr.IntN(4) == 0 && it.Attempt() < 3 {
										assert.NoError(t, it.Nack(t.Context()))
										data = nil
									} else {
										assert.NoError(t, it.Ack(t.Context()))
									}
								}
							}
							stop()
							switch {
							case err == nil && data != nil:
								got <- string(data)
							case err == nil:
							case !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled):
								t.Error(err)
							}
							if i > 0 {
								time.Sleep(time.Duration(rr.IntN(2500)) * time.Millisecond)
							}
						}
					})
				}
				producer := queue.New(operator, path)
				for i := range 300 {
					time.Sleep(time.Duration(r.IntN(300)) * time.Millisecond)
					if seed%2 == 1 && r.IntN(10) == 0 {
						for _, node := range children(t, operator, path+"/zkrecipes/waiting") {
							if r.IntN(2) == 0 {
								conn.Delete(path+"/zkrecipes/waiting/"+node, -1)
							}
						}
					}
					began := time.Now()
					var err error
					if r.IntN(5) == 0 {
						_, err = producer.OfferAfter(t.Context(), time.Duration(r.IntN(500))*time.Millisecond, []byte(fmt.Sprint(i)))
					} else {
						_, err = producer.Offer(t.Context(), []byte(fmt.Sprint(i)))
					}
					assert.NoError(t, err)
					select {
					case data := <-got:
						assert.Equal(t, fmt.Sprint(i), data)
						assert.LessOrEqual(t, time.Since(began), 1500*time.Millisecond, "offer %d", i)
					case <-time.After(2 * time.Minute):
						t.Errorf("offer %d in vain", i)
					}
				}
				cancel()
				wait.Wait()
			})
		})
	}
}

// An entry that both lookouts cannot reserve goes to a consumer behind them that can take it.
func TestEntryThatLookoutsCannotReserve(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := recipestest.Start(t, recipestest.WithInMemory())
		operator := srv.Client(t)
		path := lasting(t, operator, srv.Root(t)+"/q")
		ctx, cancel := context.WithCancel(t.Context())
		var wait sync.WaitGroup
		var links []*recipestest.Link
		for range 2 {
			link := srv.Link(t)
			links = append(links, link)
			q := queue.New(link.Client(t), path)
			wait.Go(func() { _, err := q.Reserve(ctx); assert.ErrorIs(t, err, context.Canceled) })
			time.Sleep(time.Second)
		}
		got := waiting(t, srv.Client(t), path)
		_, err := suite.Session(t, operator).Conn().Create(path+"/qn-", []byte("x"), zk.FlagSequence, zk.WorldACL(zk.PermAll&^zk.PermCreate))
		require.NoError(t, err)
		getsSoon(t, got, "x")
		before := links[0].Count(recipestest.OpAny) + links[1].Count(recipestest.OpAny)
		time.Sleep(50 * time.Second)
		require.LessOrEqual(t, links[0].Count(recipestest.OpAny)+links[1].Count(recipestest.OpAny)-before, 60)
		cancel()
		wait.Wait()
	})
}

// An entry that is delayed takes a number. A consumer that waits for that number is woken by the
// next entry all the same.
func TestOfferAfterADelayedOneWakesAWaiter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := recipestest.Start(t, recipestest.WithInMemory())
		path := lasting(t, srv.Client(t), srv.Root(t)+"/q")
		producer := queue.New(srv.Client(t), path)
		got := waiting(t, srv.Client(t), path)

		_, err := producer.OfferAfter(t.Context(), time.Hour, []byte("later"))
		require.NoError(t, err)
		synctest.Wait()
		offer(t, producer, "now")
		getsSoon(t, got, "now")
	})
}
