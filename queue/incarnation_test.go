package queue_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/queue"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// What a consumer has read of a queue says nothing about another queue at the same path, although
// names repeat.
func TestQueueThatIsCreatedAgainIsAnotherQueue(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		operator := srv.Client(t)
		path := lasting(t, operator, srv.Root(t)+"/q")
		c := srv.Client(t)
		q, other := queue.New(c, path), queue.New(operator, path)
		offer(t, other, "old a", "old b", "old c")
		data, err := q.Take(t.Context()) // and the others were read ahead
		require.NoError(t, err)
		require.Equal(t, "old a", string(data))
		require.Equal(t, []string{"old b", "old c"}, drain(t, patient(t), other))
		wipe(t, operator, path)
		lasting(t, operator, path)
		offer(t, other, "new a", "new b", "new c")
		suite.CatchUp(t, c)
		require.Equal(t, []string{"new a", "new b", "new c"}, drain(t, patient(t), q))
	})
}

// The same holds for a consumer that has paused, and whose receipt was deleted meanwhile.
func TestPausedConsumerKnowsNothingOfAnotherQueue(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		operator := srv.Client(t)
		path := lasting(t, operator, srv.Root(t)+"/q")
		q, other := queue.New(srv.Client(t), path), queue.New(operator, path)
		offer(t, other, "old a", "old b", "old c")
		data, err := q.Take(t.Context()) // and the others were read ahead
		require.NoError(t, err)
		require.Equal(t, "old a", string(data))
		time.Sleep(10 * time.Second)
		wipe(t, operator, path)
		lasting(t, operator, path)
		offer(t, other, "new a", "new b", "new c")
		require.Equal(t, []string{"new a", "new b", "new c"}, drain(t, patient(t), q))
	})
}

// At each step of a Take the queue is created again, with another entry of the same name.
func TestQueueIsCreatedAgainAtEachStep(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		root := srv.Root(t)
		suite.Sweep(t, func(step int) bool {
			operator := srv.Client(t)
			conn := suite.Session(t, operator).Conn()
			path := lasting(t, operator, root+"/"+string(rune('a'+step)))
			offer(t, queue.New(operator, path), "old")
			link := srv.Link(t)
			q := queue.New(link.Client(t), path)
			done := make(chan error, 1)
			stop := link.At(step, func() {
				_, err := conn.Multi(
					&zk.DeleteRequest{Path: path + "/qn-0000000000", Version: -1},
					&zk.DeleteRequest{Path: path, Version: -1},
					&zk.CreateRequest{Path: path, Acl: zk.WorldACL(zk.PermAll)},
					&zk.CreateRequest{Path: path + "/qn-", Data: []byte("new"), Acl: zk.WorldACL(zk.PermAll), Flags: zk.FlagSequence})
				done <- err
			})
			data, err := q.Poll(t.Context())
			met := !stop()
			var rebuilt error
			if met {
				rebuilt = <-done
			}
			left := drain(t, patient(t), queue.New(operator, path))
			switch {
			case err != nil:
				require.ErrorIs(t, err, protocol.ErrUncertain)
				require.Equal(t, "old", string(data))
			case met && rebuilt == nil: // the operator has removed the old one, and so no consumer has
				require.Equal(t, "new", string(data))
				require.Empty(t, left)
			default:
				require.Equal(t, "old", string(data))
				require.Empty(t, left)
			}
			operator.Close()
			return met
		})
	})
}

// Without its receipt an outcome is uncertain. Nothing else is wrong then.
func TestDeletedReceiptMakesTheOutcomeUncertain(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		const attempts = 20
		for range attempts {
			if receiptsDeleted(t, srv) {
				return
			}
		}
		require.Fail(t, "the receipts were always deleted too early")
	})
}

// receiptsDeleted reports whether it was fast enough: a receipt that is not used for a second is
// deleted by its owner.
func receiptsDeleted(t *testing.T, srv *recipestest.Server) bool {
	t.Helper()
	operator := srv.Client(t)
	conn := suite.Session(t, operator).Conn()
	path := lasting(t, operator, srv.Root(t)+"/q")
	link := srv.Link(t)
	q := queue.New(link.Client(t), path)
	offer(t, q, "a")
	forget := func() (receipts []string) {
		receipts = children(t, operator, path+"/zkrecipes/receipts")
		for _, node := range receipts {
			conn.Delete(path+"/zkrecipes/receipts/"+node, -1)
		}
		conn.Delete(path+"/zkrecipes/receipts", -1)
		return receipts
	}
	forget()
	offer(t, q, "b")
	await(t, link.Answered(recipestest.OpDelete, 1)) // of the receipt that is gone
	receipts, forgotten := children(t, operator, path+"/zkrecipes/receipts"), make(chan []string, 1)
	link.LoseReply(recipestest.OpMulti, 1)
	stop := link.At(2, func() { forgotten <- forget() }) // before the reply that is lost
	_, err := q.Offer(t.Context(), []byte("c"))
	require.False(t, stop())
	if !slices.Equal(receipts, <-forgotten) {
		return false
	}
	require.ErrorIs(t, err, protocol.ErrUncertain)
	require.ErrorContains(t, err, "outcome unknown: the receipt was deleted")
	require.Equal(t, 1, strings.Count(err.Error(), protocol.ErrUncertain.Error()))
	offer(t, q, "d")
	require.Equal(t, []string{"a", "b", "c", "d"}, drain(t, patient(t), q))
	return true
}

// Many goroutines share round trips, each keeps its order, and a caller that has given up in time
// has offered nothing.
func TestOffersShareRoundTrips(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) { offersShare(t, srv, func() {}) })

	// In virtual time all goroutines have made their offers before the link heals.
	t.Run("in virtual time", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			transactions := offersShare(t, recipestest.Start(t, recipestest.WithInMemory()), synctest.Wait)
			require.Less(t, transactions, sharing/5)
		})
	})
}

const sharing = 50 // goroutines

// offersShare stalls the link while goroutines make offers. made blocks until that is so.
// offersShare returns the number of transactions after the link has healed.
func offersShare(t *testing.T, srv *recipestest.Server, made func()) (transactions int) {
	const each = 2
	link := srv.Link(t)
	c := link.Client(t)
	path := lasting(t, c, srv.Root(t)+"/q")
	q := queue.New(c, path)
	offer(t, q, "first")
	link.Stall()
	dead, cancel := context.WithCancel(t.Context())
	var wait suite.Group
	for g := range sharing {
		wait.Go(func() error {
			for _, data := range numbered(g*each, each) {
				if _, err := q.Offer(t.Context(), data); err != nil {
					return err
				}
			}
			return nil
		})
	}
	cancel()
	_, err := q.Offer(dead, []byte("never"))
	require.ErrorIs(t, err, context.Canceled)
	made()
	before := link.Count(recipestest.OpMulti)
	link.Delay(time.Millisecond) // so that goroutines make their next offers meanwhile
	link.Heal()
	require.NoError(t, wait.Wait())
	transactions = link.Count(recipestest.OpMulti) - before

	got := drain(t, patient(t), q)
	require.Len(t, got, 1+sharing*each)
	require.NotContains(t, got, "never")
	place := make(map[string]int)
	for i, data := range got {
		place[data] = i
	}
	for g := range sharing {
		first := numbered(g*each, each)
		require.Less(t, place[string(first[0])], place[string(first[1])])
	}
	return transactions
}

// Consumers in one process take nothing from one another: one transaction serves them all.
func TestLocalConsumersDoNotRace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := recipestest.Start(t, recipestest.WithInMemory())
		link := srv.Link(t)
		path := lasting(t, srv.Client(t), srv.Root(t)+"/q")
		_, err := queue.New(srv.Client(t), path).OfferAll(t.Context(), numbered(0, 200))
		require.NoError(t, err)
		q := queue.New(link.Client(t), path)
		link.Delay(time.Millisecond)
		got := make(chan string, 200)
		require.NoError(t, together(20, func() error {
			for range 10 {
				data, err := q.Take(t.Context())
				if err != nil {
					return err
				}
				got <- string(data)
			}
			return nil
		}))
		close(got)
		seen := make(map[string]bool)
		for data := range got {
			require.False(t, seen[data])
			seen[data] = true
		}
		require.Len(t, seen, 200)
		require.Less(t, link.Count(recipestest.OpMulti), 200/4)
	})
}

// A queue whose entries are all reserved, or have foreign children, is not asked about again and
// again.
func TestWaitingForReservedEntriesIsQuiet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := recipestest.Start(t, recipestest.WithInMemory())
		c := srv.Client(t)
		path := lasting(t, c, srv.Root(t)+"/q")
		offer(t, queue.New(c, path), "reserved", "with a foreign child")
		it := reserve(t, queue.New(c, path))
		conn := suite.Session(t, c).Conn()
		_, err := conn.Create(path+"/qn-0000000002/foreign", nil, 0, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
		link := srv.Link(t)
		ctx, cancel := contextFor(t, 1500*time.Millisecond)
		defer cancel()
		_, err = queue.New(link.Client(t), path).Take(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Less(t, link.Count(recipestest.OpAny), 100)
		require.NoError(t, it.Ack(t.Context()))
	})
}

// Data that was changed after it had been read ahead is returned as it is now. An entry that was
// removed is not returned.
func TestDataReadAheadIsNotTrusted(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		operator := srv.Client(t)
		conn := suite.Session(t, operator).Conn()
		path := lasting(t, operator, srv.Root(t)+"/q")
		link := srv.Link(t)
		q := queue.New(link.Client(t), path)
		offer(t, q, "a", "b", "c", "d")
		reads := link.Answered(recipestest.OpGetData, link.Count(recipestest.OpGetData)+4)
		data, err := q.Take(t.Context())
		require.NoError(t, err)
		require.Equal(t, "a", string(data))
		await(t, reads)
		_, err = conn.Set(path+"/qn-0000000002", []byte("changed"), -1)
		require.NoError(t, err)
		require.NoError(t, conn.Delete(path+"/qn-0000000003", -1))
		require.Equal(t, []string{"changed", "d"}, drain(t, patient(t), q))
	})
}

// A queue is not removed when it is empty: a request that is on its way for an entry that is gone
// would hit the next entry of the same name.
func TestEmptyQueueStays(t *testing.T) {
	t.Parallel()
	for verb, get := range map[string]func(context.Context, *queue.Queue) ([]byte, error){
		"poll": func(ctx context.Context, q *queue.Queue) ([]byte, error) { return q.Poll(ctx) },
		"reserve": func(ctx context.Context, q *queue.Queue) ([]byte, error) {
			it, err := q.TryReserve(ctx)
			if err != nil {
				return nil, err
			}
			return it.Data(), it.Ack(ctx)
		},
	} {
		t.Run(verb, func(t *testing.T) {
			t.Parallel()
			srv := recipestest.Start(t)
			root := srv.Root(t)
			suite.Sweep(t, func(step int) bool {
				path := root + "/" + string(rune('a'+step))
				other := queue.New(srv.Client(t), path)
				offer(t, other, "old")
				link := srv.Link(t)
				q := queue.New(link.Client(t), path)
				all := make(chan []string, 1)
				stop := link.At(step, func() {
					data, _ := other.Poll(t.Context())
					srv.Embedded().ReapContainers()
					_, err := other.Offer(t.Context(), []byte("new"))
					if err != nil {
						data = []byte(err.Error())
					}
					all <- []string{string(data)}
				})

				data, err := get(t.Context(), q)
				met := !stop()
				got := []string{string(data)}
				if err != nil {
					require.ErrorIs(t, err, queue.ErrEmpty)
				}
				want := []string{"old"}
				if met {
					got, want = append(got, <-all...), []string{"new", "old"}
				}
				got = append(got, exhaust(t, other)...)
				got = slices.DeleteFunc(got, func(s string) bool { return s == "" })
				slices.Sort(got)
				require.Equal(t, want, got, "step %d", step)
				return met
			})
		})
	}
}
