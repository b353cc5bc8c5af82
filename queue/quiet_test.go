package queue_test

import (
	"context"
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

// A crowd is sessions that wait at a queue, each behind a link of its own.
type crowd struct {
	links []*recipestest.Link
	got   chan string // what they take or reserve
}

// newCrowd has n sessions wait at a queue, half of them in Take and half in Reserve, until the test
// ends. It returns when they have settled down.
func newCrowd(t *testing.T, srv *recipestest.Server, path string, n int) *crowd {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	c := &crowd{got: make(chan string, n)}
	var wait suite.Group
	for i := range n {
		link := srv.Link(t)
		c.links = append(c.links, link)
		q := queue.New(link.Client(t), path)
		wait.Go(func() error {
			var data []byte
			var err error
			if i%2 == 0 {
				data, err = q.Take(ctx)
			} else {
				var it *queue.Item
				if it, err = q.Reserve(ctx); err == nil {
					data, err = it.Data(), it.Ack(ctx)
				}
			}
			if ctx.Err() != nil {
				return nil
			}
			c.got <- string(data)
			return err
		})
	}
	t.Cleanup(func() {
		cancel()
		assert.NoError(t, wait.Wait())
	})
	time.Sleep(20 * time.Second)
	synctest.Wait()
	return c
}

// count returns how many requests of these kinds all sessions have sent.
func (c *crowd) count(ops ...recipestest.Op) (n int) {
	for _, link := range c.links {
		for _, op := range ops {
			n += link.Count(op)
		}
	}
	return n
}

func (c *crowd) events() (n int) {
	for _, link := range c.links {
		n += link.Events()
	}
	return n
}

// woken returns how many sessions get a watch event while do runs.
func (c *crowd) woken(do func()) (n int) {
	before := make([]int, len(c.links))
	for i, link := range c.links {
		before[i] = link.Events()
	}
	do()
	for i, link := range c.links {
		if link.Events() > before[i] {
			n++
		}
	}
	return n
}

func (c *crowd) delay(d time.Duration) {
	for _, link := range c.links {
		link.Delay(d)
	}
}

var (
	reads  = []recipestest.Op{recipestest.OpGetData, recipestest.OpExists, recipestest.OpGetChildren}
	writes = []recipestest.Op{recipestest.OpMulti, recipestest.OpCreate, recipestest.OpDelete, recipestest.OpSetData}
)

// reserved fills a queue with n entries and reserves all of them, in order. holder says for each of
// them by which queue.
func reserved(t *testing.T, n int, producer *queue.Queue, holder func(i int) *queue.Queue) (items []*queue.Item) {
	t.Helper()
	fill(t, producer, n)
	for i := range n {
		it, err := holder(i).TryReserve(t.Context())
		require.NoError(t, err)
		items = append(items, it)
	}
	giveBack(t, items...)
	return items
}

// heldBy reserves all entries for one consumer.
func heldBy(q *queue.Queue) func(int) *queue.Queue { return func(int) *queue.Queue { return q } }

// Sessions that wait hear little of an Ack: it frees nothing.
func TestAckWakesFewWaiters(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := recipestest.Start(t, recipestest.WithInMemory())
		path := lasting(t, srv.Client(t), srv.Root(t)+"/q")
		holder := queue.New(srv.Client(t), path)
		items := reserved(t, 8, holder, heldBy(holder))
		c := newCrowd(t, srv, path, 50)
		for i, it := range items {
			events, requests, lists := c.events(), c.count(recipestest.OpAny), c.count(recipestest.OpGetChildren)
			require.NoError(t, it.Ack(t.Context()))
			time.Sleep(50 * time.Millisecond)
			synctest.Wait()
			events, requests, lists = c.events()-events, c.count(recipestest.OpAny)-requests, c.count(recipestest.OpGetChildren)-lists
			t.Logf("Ack %d: %d events, %d requests, %d listings", i, events, requests, lists)
			require.LessOrEqual(t, requests, 10)
			require.Zero(t, lists)
		}
	})
}

// An offer wakes two of the sessions that wait while all other entries are reserved. A session that
// gets the entry may wake others that move up.
func TestOfferWakesTwoOfTheSessionsThatWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const away, few = 10 * time.Millisecond, 80 // each way; requests
		srv := recipestest.Start(t, recipestest.WithInMemory())
		path := lasting(t, srv.Client(t), srv.Root(t)+"/q")
		holder := queue.New(srv.Client(t), path)
		reserved(t, 8, holder, heldBy(holder))
		c := newCrowd(t, srv, path, 50)
		c.delay(away)
		for range 5 {
			requests := c.count(recipestest.OpAny)
			woken := c.woken(func() {
				offer(t, holder, "x")
				time.Sleep(away * 3 / 2) // no session can have taken it yet
			})
			require.Equal(t, "x", <-c.got)
			time.Sleep(200 * away) // receipts go that are not used any more
			requests = c.count(recipestest.OpAny) - requests
			t.Logf("%d sessions are woken, %d requests in all", woken, requests)
			require.LessOrEqual(t, woken, 2)
			require.Positive(t, woken)
			require.LessOrEqual(t, requests, few)
		}
	})
}

// A session that waits sends pings, and no writes. A few may look again now and then.
func TestIdleConsumersSendPingsOnly(t *testing.T) {
	for name, entries := range map[string]int{"empty": 0, "all reserved": 8} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const minutes, lookouts, look = 10, 2, 4 // requests
				srv := recipestest.Start(t, recipestest.WithInMemory())
				path := lasting(t, srv.Client(t), srv.Root(t)+"/q")
				holder := queue.New(srv.Client(t), path)
				reserved(t, entries, holder, heldBy(holder))
				c := newCrowd(t, srv, path, 20)
				all, written := c.count(recipestest.OpAny), c.count(writes...)
				time.Sleep(minutes * time.Minute)
				synctest.Wait()
				all, written = c.count(recipestest.OpAny)-all, c.count(writes...)-written
				t.Logf("%d requests, %d writes", all, written)
				require.Zero(t, written)
				require.LessOrEqual(t, all, minutes*lookouts*(look+entries))
			})
		})
	}
}

// A consumer of an empty queue looks again once a minute. That adds no watch, which other nodes
// would fire.
func TestIdleConsumerIsNotWokenByOtherNodes(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link := srv.Root(t)+"/q", srv.Link(t)
		q, other := queue.New(link.Client(t), path), suite.Session(t, srv.Client(t))
		taken := suite.Later(func() error { _, err := q.Take(t.Context()); return err })
		time.Sleep(3*time.Hour + time.Second)
		before := link.Count(recipestest.OpAny)
		require.NoError(t, other.Create(t.Context(), path+"/other", nil, 0))
		time.Sleep(time.Millisecond)
		require.Equal(t, before, link.Count(recipestest.OpAny))
		_, err := queue.New(srv.Client(t), path).Offer(t.Context(), nil)
		require.NoError(t, err)
		require.NoError(t, suite.Wait(t, taken))
	})
}

// Entries that stay reserved are looked at by one session in all, about once a minute.
func TestReservedEntriesAreCheckedByOneSession(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const entries = 1000
		srv := recipestest.Start(t, recipestest.WithInMemory())
		path := lasting(t, srv.Client(t), srv.Root(t)+"/q")
		holder := queue.New(srv.Client(t), path)
		reserved(t, entries, holder, heldBy(holder))
		c := newCrowd(t, srv, path, 5)
		read := c.count(reads...)
		time.Sleep(time.Minute)
		synctest.Wait()
		read = c.count(reads...) - read
		t.Logf("%d reads in a minute", read)
		require.LessOrEqual(t, read, entries*5/4)
	})
}

// An entry far behind others that are reserved comes back, and a waiter gets it at once.
func TestWaiterGetsADistantItemAtOnce(t *testing.T) {
	const (
		entries = 1000
		distant = 499
		atOnce  = 10 * time.Millisecond
	)
	for name, free := range map[string]func(*testing.T, *recipestest.Server, *protocol.Client, *queue.Item){
		"nack": func(t *testing.T, _ *recipestest.Server, _ *protocol.Client, it *queue.Item) {
			require.NoError(t, it.Nack(t.Context()))
		},
		"crash": func(t *testing.T, srv *recipestest.Server, holder *protocol.Client, _ *queue.Item) {
			srv.ExpireSession(suite.Session(t, holder).ID())
		},
		"close": func(t *testing.T, _ *recipestest.Server, holder *protocol.Client, _ *queue.Item) {
			suite.Close(t, holder)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				srv := recipestest.Start(t, recipestest.WithInMemory())
				path := lasting(t, srv.Client(t), srv.Root(t)+"/q")
				client := srv.Client(t)
				one, others := queue.New(client, path), queue.New(srv.Client(t), path)
				items := reserved(t, entries, others, func(i int) *queue.Queue {
					if i == distant {
						return one
					}
					return others
				})
				c := newCrowd(t, srv, path, 5)
				began := time.Now()
				free(t, srv, client, items[distant])
				data := <-c.got
				waited := time.Since(began)
				t.Logf("after %v", waited)
				require.Equal(t, string(items[distant].Data()), data)
				require.LessOrEqual(t, waited, atOnce)
			})
		})
	}
}

// An entry that no consumer may read goes the rounds once. After that, few look at it again, and
// none stands in line anew.
func TestUnreadableEntryGoesTheRoundsOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const sessions, minutes = 20, 10
		srv := recipestest.Start(t, recipestest.WithInMemory())
		operator := srv.Client(t)
		path := lasting(t, operator, srv.Root(t)+"/q")
		conn := suite.Session(t, operator).Conn()
		_, err := conn.Create(path+"/qn-", []byte("x"), zk.FlagSequence, zk.WorldACL(zk.PermDelete|zk.PermAdmin))
		require.NoError(t, err)
		c := newCrowd(t, srv, path, sessions)
		written, read := c.count(writes...), c.count(reads...)
		time.Sleep(minutes * time.Minute)
		t.Log(c.count(writes...)-written, c.count(reads...)-read)
		require.Equal(t, written, c.count(writes...))
		require.LessOrEqual(t, c.count(reads...)-read, 12*minutes)

		// Once it may be read, it is.
		_, err = conn.SetACL(path+"/"+entries(t, operator, path)[0], zk.WorldACL(zk.PermAll), -1)
		require.NoError(t, err)
		time.Sleep(time.Minute + time.Second)
		require.Equal(t, "x", <-c.got)
	})
}
