package queue_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/queue"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// A holding is a queue whose entries one client has reserved, over a link.
type holding struct {
	srv      *recipestest.Server
	operator *protocol.Client
	path     string
	link     *recipestest.Link
	client   *protocol.Client
	queue    *queue.Queue
	items    []*queue.Item
}

// hold offers n entries and reserves them. There is a receipt for what becomes of them.
func hold(t *testing.T, srv *recipestest.Server, n int, opts ...protocol.ConnectOption) *holding {
	t.Helper()
	h := &holding{srv: srv, operator: srv.Client(t), link: srv.Link(t)}
	h.path = lasting(t, h.operator, srv.Root(t)+"/q")
	h.client = h.link.Client(t, opts...)
	h.queue = queue.New(h.client, h.path)
	_, err := queue.New(h.operator, h.path).OfferAll(t.Context(), numbered(0, n+1))
	require.NoError(t, err)
	require.NoError(t, reserve(t, h.queue).Ack(t.Context()))
	for range n {
		h.items = append(h.items, reserve(t, h.queue))
	}
	return h
}

func (h *holding) entries(t *testing.T) []string { return entries(t, h.operator, h.path) }

// each calls decide for all items at once, and returns the errors.
func (h *holding) each(decide func(i int, it *queue.Item) error) []error {
	errs := make([]error, len(h.items))
	var wait sync.WaitGroup
	for i, it := range h.items {
		wait.Go(func() { errs[i] = decide(i, it) })
	}
	wait.Wait()
	return errs
}

func ack(ctx context.Context, it *queue.Item) error    { return it.Ack(ctx) }
func nack(ctx context.Context, it *queue.Item) error   { return it.Nack(ctx) }
func atTail(ctx context.Context, it *queue.Item) error { return it.Nack(ctx, queue.AtTail()) }

// deleteRecords deletes the nodes beside the entries.
func deleteRecords(t *testing.T, c *protocol.Client, path string) {
	t.Helper()
	conn := suite.Session(t, c).Conn()
	for _, child := range children(t, c, path+"/zkrecipes") {
		for _, name := range children(t, c, path+"/zkrecipes/"+child) {
			require.NoError(t, conn.Delete(path+"/zkrecipes/"+child+"/"+name, -1))
		}
		require.NoError(t, conn.Delete(path+"/zkrecipes/"+child, -1))
	}
	require.NoError(t, conn.Delete(path+"/zkrecipes", -1))
}

func TestAcksShareTransactions(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		h := hold(t, srv, 100)
		h.link.Delay(10 * time.Millisecond)
		multis := h.link.Count(recipestest.OpMulti)
		for _, err := range h.each(func(_ int, it *queue.Item) error { return it.Ack(t.Context()) }) {
			require.NoError(t, err)
		}
		require.LessOrEqual(t, h.link.Count(recipestest.OpMulti)-multis, 3)
		require.Empty(t, h.entries(t))
	})
}

func TestAckAloneIsOneRequest(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		h := hold(t, srv, 1)
		multis, packets := h.link.Count(recipestest.OpMulti), h.link.Count(recipestest.OpAny)
		require.NoError(t, h.items[0].Ack(t.Context()))
		require.Equal(t, 1, h.link.Count(recipestest.OpMulti)-multis)
		require.Equal(t, 1, h.link.Count(recipestest.OpAny)-packets)
	})
}

// One claim of a batch was deleted by an operator. The others are not held up.
func TestBatchWithALostItem(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		h := hold(t, srv, 10)
		node := h.path + "/" + h.items[5].ID()
		require.NoError(t, suite.Session(t, h.operator).Conn().Delete(node+"/"+claimOf(h.items[5]), -1))
		h.link.Delay(time.Millisecond) // and the loss is heard of later than that
		errs := h.each(func(i int, it *queue.Item) error {
			switch i {
			case 3:
				return it.Nack(t.Context())
			case 4:
				return it.Nack(t.Context(), queue.AtTail())
			}
			return it.Ack(t.Context())
		})
		require.ErrorIs(t, errs[5], protocol.ErrLost)
		require.ErrorIs(t, errs[5], protocol.ErrNodeDeleted)
		require.ErrorContains(t, errs[5], "not reserved by this item")
		for i, err := range errs {
			if i != 5 {
				require.NoError(t, err, i)
			}
		}
		left := h.entries(t)
		require.Len(t, left, 3)
		for _, name := range left {
			require.Empty(t, children(t, h.operator, h.path+"/"+name))
		}
		require.Equal(t, []string{"000004", "000006", "000005"}, drain(t, t.Context(), queue.New(h.operator, h.path)))
	})
}

// What settles an item happens once, whatever is lost on the way.
func TestSettledOnceThoughRepliesAreLost(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		decide func(context.Context, *queue.Item) error
		want   []string
	}{
		"ack":     {ack, nil},
		"nack":    {nack, []string{"000001", "000002"}},
		"at tail": {atTail, []string{"000001", "000002"}},
	} {
		t.Run(name, func(t *testing.T) {
			suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
				h := hold(t, srv, 2)
				h.link.LoseReply(recipestest.OpMulti, 2)
				for _, err := range h.each(func(_ int, it *queue.Item) error { return c.decide(t.Context(), it) }) {
					require.NoError(t, err)
				}
				require.ElementsMatch(t, c.want, drain(t, t.Context(), queue.New(h.operator, h.path)))
			})
		})
	}
}

// The records are deleted by hand while nothing is under way.
func TestItemsAreSettledWithoutTheRecords(t *testing.T) {
	t.Parallel()
	for name, decide := range map[string]func(context.Context, *queue.Item) error{
		"ack": ack, "nack": nack, "at tail": atTail,
	} {
		t.Run(name, func(t *testing.T) {
			suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
				h := hold(t, srv, 1)
				deleteRecords(t, h.operator, h.path)
				require.NoError(t, decide(t.Context(), h.items[0]))
				_, stat, err := suite.Session(t, h.operator).Conn().Get(h.path)
				require.NoError(t, err)
				require.Zero(t, stat.EphemeralOwner, "the queue's node is persistent")
			})
		})
	}
}

// The server refuses to write the receipt. The items have no part in that.
func TestReceiptThatMayNotBeWritten(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		h := hold(t, srv, 3)
		require.NoError(t, h.items[0].Ack(t.Context()))
		receipts := h.path + "/zkrecipes/receipts"
		for _, name := range children(t, h.operator, receipts) {
			_, err := suite.Session(t, h.operator).Conn().SetACL(receipts+"/"+name, zk.WorldACL(zk.PermRead), -1)
			require.NoError(t, err)
		}
		require.ErrorIs(t, h.items[1].Ack(t.Context()), zk.ErrNoAuth)
		require.NoError(t, h.items[2].Ack(t.Context()))
		require.Equal(t, []string{"000002"}, drain(t, t.Context(), queue.New(h.operator, h.path)))
	})
}

// The session is lost with the answer.
func TestAckWhoseOutcomeIsUnknown(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		h := hold(t, srv, 1)
		session := suite.Session(t, h.client)
		sent := h.link.Sent(recipestest.OpMulti, h.link.Count(recipestest.OpMulti)+1)
		h.link.StallReplies()
		done := make(chan error, 1)
		go func() { done <- h.items[0].Ack(t.Context()) }()
		await(t, sent)
		synctest.Wait()
		srv.ExpireSession(session.ID())
		h.link.Cut()
		h.link.Heal()
		err := <-done
		require.ErrorIs(t, err, protocol.ErrLost)
		require.ErrorIs(t, err, protocol.ErrUncertain)
	})
}

// A back-off that ends bounds all calls that share a transaction. What they have decided is done.
func TestBackOffThatEndsBoundsEachCall(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		once := protocol.WithBackOff(func() backoff.BackOff {
			return backoff.WithMaxRetries(backoff.NewConstantBackOff(100*time.Millisecond), 3)
		})
		h := hold(t, srv, 5, once, protocol.WithSessionTimeout(20*time.Second))
		session := suite.Session(t, h.client)
		h.link.LoseReply(recipestest.OpAny, 1000)
		began := time.Now()
		for _, err := range h.each(func(_ int, it *queue.Item) error { return it.Ack(t.Context()) }) {
			require.ErrorContains(t, err, "given up")
		}
		require.Less(t, time.Since(began), 3*time.Second)
		h.link.LoseReply(recipestest.OpAny, 0)
		time.Sleep(10 * time.Second)
		require.NoError(t, session.Err())
		require.Empty(t, h.entries(t))
	})
}

// register returns the data and the version of the queue's register.
func register(t *testing.T, c *protocol.Client, path string) (released string, version int32) {
	t.Helper()
	data, stat := suite.Get(t, c, path+"/zkrecipes")
	return string(data), stat.Version
}

// Whatever gives a claim up tells the consumers that wait.
func TestClaimThatEndsRings(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(t *testing.T, h *holding){
		"nack": func(t *testing.T, h *holding) { require.NoError(t, h.items[0].Nack(t.Context())) },
		"nack, reply lost": func(t *testing.T, h *holding) {
			h.link.LoseReply(recipestest.OpMulti, 1)
			require.NoError(t, h.items[0].Nack(t.Context()))
		},
		"deleted by hand": func(t *testing.T, h *holding) {
			node := h.path + "/" + h.items[0].ID() + "/" + claimOf(h.items[0])
			require.NoError(t, suite.Session(t, h.operator).Conn().Delete(node, -1))
			<-h.items[0].Done()
		},
	} {
		t.Run(name, func(t *testing.T) {
			suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
				h := hold(t, srv, 1)
				_, before := register(t, h.operator, h.path)
				end(t, h)
				synctest.Wait()
				released, after := register(t, h.operator, h.path)
				require.Equal(t, h.items[0].ID(), released)
				require.Equal(t, before+1, after)
			})
		})
	}
}

// Claims that were made for callers that had left are no attempts, and are told of when they end.
func TestReservationsThatWereGivenUpAreNoAttempts(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		h := hold(t, srv, 0)
		dead := srv.Root(t) + "/dead"
		q := queue.New(h.client, h.path, queue.WithDeadLetter(queue.New(h.client, dead), 2))
		offer(t, queue.New(h.operator, h.path), "x")
		h.link.Delay(100 * time.Millisecond)
		for i := range 3 {
			_, before := register(t, h.operator, h.path)
			multis := h.link.Count(recipestest.OpMulti)
			ctx, cancel := context.WithCancel(t.Context())
			sent := h.link.Sent(recipestest.OpMulti, h.link.Count(recipestest.OpMulti)+1)
			failed := make(chan error, 1)
			go func() { _, err := q.Reserve(ctx); failed <- err }()
			await(t, sent)
			cancel()
			require.ErrorIs(t, <-failed, context.Canceled)
			time.Sleep(time.Second)
			require.Equal(t, 2, h.link.Count(recipestest.OpMulti)-multis) // the claim and its end

			id := h.entries(t)[0]
			released, after := register(t, h.operator, h.path)
			require.Equal(t, id, released)
			require.Equal(t, before+1, after)
			_, stat := suite.Get(t, h.operator, h.path+"/"+id)
			require.Equal(t, int32(2*i+2), stat.Cversion, "there was no claim")
		}
		h.link.Delay(0)
		for attempt := 1; attempt <= 2; attempt++ {
			it := reserve(t, q)
			require.Equal(t, attempt, it.Attempt())
			require.NoError(t, it.Nack(t.Context()))
		}
		_, err := q.TryReserve(t.Context())
		require.ErrorIs(t, err, queue.ErrEmpty)
		require.Len(t, entries(t, h.operator, dead), 1)
	})
}

// A claim whose entry was changed by hand is given up all the same.
func TestChangedEntryIsGivenBack(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		h := hold(t, srv, 2)
		conn := suite.Session(t, h.operator).Conn()
		for _, it := range h.items {
			for range 3 {
				_, err := conn.Set(h.path+"/"+it.ID(), []byte("new"), -1)
				require.NoError(t, err)
			}
		}
		require.ErrorIs(t, h.items[0].Nack(t.Context(), queue.AtTail()), zk.ErrBadVersion)
		require.NoError(t, h.items[1].Nack(t.Context()))
		q := queue.New(h.operator, h.path)
		it := reserve(t, q)
		require.Equal(t, h.items[0].ID(), it.ID())
		require.Equal(t, 1, it.Attempt())
		require.NoError(t, it.Nack(t.Context()))
		require.Equal(t, []string{"new", "new"}, drain(t, t.Context(), q))
	})
}
