package queue_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/queue"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// emptied fills a queue with n entries, and has pools of these sizes empty it.
func emptied(t *testing.T, n int, take verb, sizes ...int) (r result) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		srv := recipestest.Start(t, recipestest.WithInMemory())
		path := lasting(t, srv.Client(t), srv.Root(t)+"/q")
		fill(t, queue.New(srv.Client(t), path), n)
		r = consumeAll(t, newPools(t, srv, path, sizes...), take)
		t.Log(r)
		require.Equal(t, n, r.total(), "entries were left")
	})
	return r
}

var takers = []struct {
	name string
	take verb
}{{"Poll", pollOne}, {"TryReserve and Ack", reserveAndAck}}

// Each session gets its share, however many goroutines share it, and more goroutines make nothing
// slower.
func TestEachSessionGetsItsShare(t *testing.T) {
	for _, c := range takers {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			rates := make(map[string]float64)
			for _, size := range []struct{ sessions, goroutines int }{{4, 1}, {4, 4}, {8, 1}, {8, 8}, {2, 10}} {
				name := fmt.Sprintf("%dx%d", size.sessions, size.goroutines)
				t.Run(name, func(t *testing.T) {
					each := 100 + 40*size.goroutines // entries; enough for some tens of transactions
					r := emptied(t, each*size.sessions, c.take, slices.Repeat([]int{size.goroutines}, size.sessions)...)
					rates[name] = r.rate()
					requireShares(t, r.shares)
				})
			}
			for one, many := range map[string]string{"4x1": "4x4", "8x1": "8x8"} {
				t.Run(many+" beside "+one, func(t *testing.T) {
					require.GreaterOrEqual(t, rates[many], rates[one])
				})
			}
		})
	}
}

// A session with one goroutine and one with a hundred both get on. A fair queue may count sessions
// or goroutines. So each gets at least half of the smaller of these two shares. Neither waits for
// long.
func TestOneGoroutineBesideAHundred(t *testing.T) {
	const few, many = 1, 100
	for _, c := range takers {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			const n = 3000
			r := emptied(t, n, c.take, few, many)
			require.GreaterOrEqual(t, r.shares[0], n*few/(few+many)/2)
			require.GreaterOrEqual(t, r.shares[1], n/2/2)
			for _, pause := range r.pauses {
				require.Less(t, pause, 50*roundTrip)
			}
		})
	}
}

// A session far from the servers, with many goroutines, is not shut out by a near one that is
// always faster with the first entry.
func TestFarSessionBesideANearOne(t *testing.T) {
	const near, far = 1, 100
	for _, c := range takers {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const n = 30 // too few for tickets
				srv := recipestest.Start(t, recipestest.WithInMemory())
				path := lasting(t, srv.Client(t), srv.Root(t)+"/q")
				fill(t, queue.New(srv.Client(t), path), n)
				pools := newPools(t, srv, path, near, far)
				pools[0].link.Delay(roundTrip)
				pools[1].link.Delay(2 * roundTrip)
				var wait suite.Group
				for _, p := range pools {
					for _, q := range p.queues {
						wait.Go(func() error { return p.consume(t.Context(), q, c.take) })
					}
				}
				require.NoError(t, wait.Wait())
				t.Log(len(pools[0].takes), len(pools[1].takes))
				require.Equal(t, n, len(pools[0].takes)+len(pools[1].takes))
				require.GreaterOrEqual(t, len(pools[1].takes), n/5)
			})
		})
	}
}

// Consumers do not draw one ticket after the other from a node whose tickets are for entries that
// have gone long ago, as one of two that were created at the same time may be.
func TestTicketsForEntriesThatHaveGone(t *testing.T) {
	const gone, n = 3000, 200
	for name, prepare := range map[string]func(t *testing.T, q *queue.Queue) (taken int){
		"all": func(*testing.T, *queue.Queue) int { return 0 },
		"but for one that is reserved": func(t *testing.T, q *queue.Queue) int {
			it, err := q.Reserve(t.Context())
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, it.Ack(context.Background())) })
			return 1
		},
		"but for one that was passed over": func(t *testing.T, q *queue.Queue) int {
			it, err := q.Reserve(t.Context())
			require.NoError(t, err)
			require.Len(t, drain(t, t.Context(), q), gone-1)
			require.NoError(t, it.Nack(t.Context()))
			return gone - 1
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				srv := recipestest.Start(t, recipestest.WithInMemory())
				operator := srv.Client(t)
				path := lasting(t, operator, srv.Root(t)+"/q")
				former := queue.New(operator, path)
				fill(t, former, gone)
				left := gone - prepare(t, former)
				if left > 1 {
					require.Len(t, drain(t, t.Context(), former), left)
					left = 0
				}
				fill(t, former, n)
				conn := suite.Session(t, operator).Conn()
				_, err := conn.Create(path+"/zkrecipes/tickets-10", nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
				require.NoError(t, err)

				r := consumeAll(t, newPools(t, srv, path, 1, 1), pollOne)
				require.Equal(t, left+n, r.total())
				require.Less(t, r.multis, 2*n)
			})
		})
	}
}

// Where entries are fewer than workers, they go to all sessions alike.
func TestScarceEntriesGoToAllSessions(t *testing.T) {
	const (
		sessions, workers = 6, 10
		entries           = 600
		interval          = 20 * time.Millisecond
		work              = 50 * time.Millisecond
	)
	for name, take := range map[string]verb{
		"Take": func(ctx context.Context, q *queue.Queue) (string, error) {
			data, err := q.Take(ctx)
			time.Sleep(work)
			return string(data), err
		},
		"Reserve": func(ctx context.Context, q *queue.Queue) (string, error) {
			it, err := q.Reserve(ctx)
			if err != nil {
				return "", err
			}
			time.Sleep(work)
			return string(it.Data()), it.Ack(ctx)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				srv := recipestest.Start(t, recipestest.WithInMemory())
				path := lasting(t, srv.Client(t), srv.Root(t)+"/q")
				pools := newPools(t, srv, path, slices.Repeat([]int{workers}, sessions)...)
				for i, p := range pools {
					defer withJitter(t, p.link, uint64(i))()
				}
				ctx, stop := context.WithCancel(t.Context())
				var wait suite.Group
				for _, p := range pools {
					for _, q := range p.queues {
						wait.Go(func() error { return p.work(ctx, q, take) })
					}
				}
				time.Sleep(time.Second) // all of them wait

				producer := queue.New(srv.Client(t), path)
				for _, data := range numbered(0, entries) {
					offer(t, producer, string(data))
					time.Sleep(interval)
				}
				time.Sleep(time.Second)
				stop()
				require.NoError(t, wait.Wait())
				var shares []int
				total := 0
				for _, p := range pools {
					shares = append(shares, len(p.takes))
					total += len(p.takes)
				}
				t.Log(shares)
				require.Equal(t, entries, total)
				requireShares(t, shares)
			})
		})
	}
}

// A queue.New for each goroutine is not much worse than one Queue for all.
func TestQueueForEachGoroutine(t *testing.T) {
	const goroutines, n = 10, 600
	for _, c := range takers {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			shared := emptied(t, n, c.take, goroutines)
			var own result
			synctest.Test(t, func(t *testing.T) {
				srv := recipestest.Start(t, recipestest.WithInMemory())
				path := lasting(t, srv.Client(t), srv.Root(t)+"/q")
				fill(t, queue.New(srv.Client(t), path), n)
				pools := newPools(t, srv, path, goroutines)
				for i := range pools[0].queues {
					pools[0].queues[i] = queue.New(pools[0].client, path)
				}
				own = consumeAll(t, pools, c.take)
				t.Log(own)
			})
			require.GreaterOrEqual(t, own.rate(), shared.rate()/2)
		})
	}
}

// A foreign consumer does not starve beside ours. It lists the queue for each entry, reads and
// deletes the first one, and goes on to the next of its list if another consumer was faster.
func TestForeignConsumerGetsItsShare(t *testing.T) {
	const n = 450
	for _, c := range takers {
		for _, sessions := range []int{1, 2} {
			t.Run(fmt.Sprintf("%s %d", c.name, sessions), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					srv := recipestest.Start(t, recipestest.WithInMemory())
					path := lasting(t, srv.Client(t), srv.Root(t)+"/q")
					fill(t, queue.New(srv.Client(t), path), n)
					pools := newPools(t, srv, path, slices.Repeat([]int{1}, sessions)...)
					link := srv.Link(t)
					conn := suite.Session(t, link.Client(t)).Conn()
					defer withJitter(t, link, 100)()

					foreign := 0
					var failed error
					var wait sync.WaitGroup
					wait.Go(func() {
						for failed == nil {
							var found bool
							if found, failed = foreignPoll(conn, path); !found {
								return
							}
							foreign++
						}
					})
					r := consumeAll(t, pools, c.take)
					wait.Wait()
					t.Log(r, "the foreign one:", foreign)
					require.NoError(t, failed)
					require.Equal(t, n, foreign+r.total())
					require.GreaterOrEqual(t, foreign, n/(sessions+1)/4)
				})
			})
		}
	}
}

// foreignPoll removes the first entry that it can, as Curator's SimpleDistributedQueue does. It
// reports whether there was one.
func foreignPoll(conn *zk.Conn, path string) (found bool, err error) {
	names, _, err := conn.Children(path)
	if err != nil {
		return false, err
	}
	slices.Sort(names)
	for _, name := range names {
		if !strings.HasPrefix(name, "qn-") {
			continue
		}
		_, _, err := conn.Get(path + "/" + name)
		if err == nil {
			err = conn.Delete(path+"/"+name, -1)
		}
		switch {
		case err == nil:
			return true, nil
		case !errors.Is(err, zk.ErrNoNode) && !errors.Is(err, zk.ErrNotEmpty): // it is gone, or reserved
			return false, err
		}
	}
	return false, nil
}

// The goroutines of a single consuming session take entries exactly in order.
func TestOneSessionKeepsOrder(t *testing.T) {
	for _, c := range takers {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := emptied(t, 400, c.take, 8)
			requireOrder(t, r.takes, 1)
		})
	}
}

// Each transaction of a single consuming session reserves the entries right behind those of the one
// before it.
func TestOneSessionReservesInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const n, goroutines = 400, 8
		srv := recipestest.Start(t, recipestest.WithInMemory())
		path := lasting(t, srv.Client(t), srv.Root(t)+"/q")
		fill(t, queue.New(srv.Client(t), path), n)
		type reservation struct {
			token int64
			id    string
		}
		var mu sync.Mutex
		var all []reservation
		pools := newPools(t, srv, path, goroutines)
		consumeAll(t, pools, func(ctx context.Context, q *queue.Queue) (string, error) {
			it, err := q.TryReserve(ctx)
			if err != nil {
				return "", err
			}
			mu.Lock()
			all = append(all, reservation{it.Token(), it.ID()})
			mu.Unlock()
			return it.ID(), it.Ack(ctx)
		})
		require.Len(t, all, n)
		slices.SortFunc(all, func(a, b reservation) int {
			return cmp.Or(cmp.Compare(a.token, b.token), strings.Compare(a.id, b.id))
		})
		for i := range all[1:] {
			require.Less(t, all[i].id, all[i+1].id)
		}
	})
}

// when returns how long after a moment an entry was taken.
func when(t *testing.T, pools []*pool, since time.Time, data string) time.Duration {
	t.Helper()
	for _, p := range pools {
		for i, x := range p.takes {
			if x.data == data {
				return p.at[i].Sub(since)
			}
		}
	}
	t.Fatalf("%s was not taken", data)
	return 0
}

// An entry whose delay ends after consumers have come past its number does not wait until the queue
// is empty.
func TestDelayEndsBehindTheTickets(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const delay, n = time.Second, 4000
		srv := recipestest.Start(t, recipestest.WithInMemory())
		path := lasting(t, srv.Client(t), srv.Root(t)+"/q")
		producer := queue.New(srv.Client(t), path)
		_, err := producer.OfferAfter(t.Context(), delay, []byte("delayed"))
		require.NoError(t, err)
		fill(t, producer, n)
		pools := newPools(t, srv, path, 1, 1)
		timeout := suite.Session(t, pools[0].client).Timeout()
		began := time.Now()
		r := consumeAll(t, pools, pollOne)
		after := when(t, pools, began, "delayed")
		t.Log(r, "delayed:", after, "of", r.elapsed)
		require.Less(t, after, delay+timeout/3+soon)
		require.Greater(t, r.elapsed, delay+timeout/3+soon)
	})
}

// An entry that is given back after consumers have come past its number is taken at once. They
// divide such entries among themselves, and those of the one that gives back wait for a listing.
func TestGivenBackBehindTheTickets(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const n, items, interval = 4000, 6, 200 * time.Millisecond
		srv := recipestest.Start(t, recipestest.WithInMemory())
		path := lasting(t, srv.Client(t), srv.Root(t)+"/q")
		fill(t, queue.New(srv.Client(t), path), n)
		holder := queue.New(srv.Client(t), path)
		var held []*queue.Item
		for range items {
			held = append(held, reserve(t, holder))
		}
		pools := newPools(t, srv, path, 1, 1)
		timeout := suite.Session(t, pools[0].client).Timeout()
		var given [items]time.Time
		var returns suite.Group
		returns.Go(func() error {
			for i, it := range held {
				time.Sleep(interval)
				given[i] = time.Now()
				if err := it.Nack(t.Context()); err != nil {
					return err
				}
			}
			return nil
		})
		r := consumeAll(t, pools, pollOne)
		require.NoError(t, returns.Wait())

		atOnce := 0
		for i, it := range held {
			after := when(t, pools, given[i], string(it.Data()))
			t.Log(it.ID(), after, "of", r.elapsed)
			require.Less(t, after, timeout/3+soon)
			if after < soon {
				atOnce++
			}
		}
		require.GreaterOrEqual(t, atOnce, items/2)
	})
}

// Tickets for entries that are ephemeral, which cannot be reserved, are not kept.
func TestTicketsForEntriesThatCannotBeReserved(t *testing.T) {
	for _, foreign := range []int{1, 30} {
		t.Run(fmt.Sprint(foreign), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const n = 500
				srv := recipestest.Start(t, recipestest.WithInMemory())
				operator := srv.Client(t)
				path := lasting(t, operator, srv.Root(t)+"/q")
				producer := queue.New(operator, path)
				fill(t, producer, n)
				for range foreign {
					_, err := suite.Session(t, operator).Conn().Create(path+"/qn-", []byte("foreign"),
						zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
					require.NoError(t, err)
				}
				fill(t, producer, n)
				r := consumeAll(t, newPools(t, srv, path, 1, 1), reserveAndAck)
				t.Log(r)
				require.Equal(t, 2*n, r.total())
				require.Less(t, r.multis, 2*2*n+4*foreign+40)
				require.Len(t, drain(t, t.Context(), producer), foreign)
			})
		})
	}
}
