package queue_test

import (
	"context"
	"strings"
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

// An Offer that is cancelled while its request is on the way says that it may have been executed,
// and has the data.
func TestCancelledOfferOnItsWayIsUncertain(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link, path := srv.Link(t), srv.Root(t)
		q := queue.New(link.Client(t), path)
		offer(t, q, "a")
		link.Delay(time.Second)
		sent := link.Sent(recipestest.OpMulti, link.Count(recipestest.OpMulti)+1)
		ctx, cancel := context.WithCancel(t.Context())
		failed := suite.Later(func() error {
			_, err := q.OfferAll(ctx, [][]byte{[]byte("b"), []byte("c")})
			return err
		})
		await(t, sent)
		cancel()

		err := <-failed
		var uncertain *queue.UncertainError
		require.ErrorAs(t, err, &uncertain)
		require.ErrorIs(t, err, protocol.ErrUncertain)
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, []string{"b", "c"}, texts(uncertain.Data))
		time.Sleep(3 * time.Second)
		require.Equal(t, []string{"a", "b", "c"}, drain(t, t.Context(), queue.New(srv.Client(t), path)))
	})
}

// A Take is known not to have been executed when its ctx ends. So nothing is uncertain.
func TestTakeThatEndsBeforeItIsRepeated(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link, path := srv.Link(t), srv.Root(t)
		slow := protocol.WithBackOff(func() backoff.BackOff { return backoff.NewConstantBackOff(3 * time.Second) })
		q := queue.New(link.Client(t, slow, protocol.WithSessionTimeout(20*time.Second)), path)
		offer(t, q, "a", "b")
		require.NoError(t, poll(t.Context(), q))
		link.Delay(10 * time.Millisecond)
		read := link.Answered(recipestest.OpGetData, link.Count(recipestest.OpGetData)+1)
		ctx, cancel := context.WithCancel(t.Context())
		failed := suite.Later(func() error { return poll(ctx, q) })
		synctest.Wait()
		link.Cut() // the request is lost on its way
		link.Heal()
		await(t, read) // the receipt
		time.Sleep(time.Second)
		cancel()

		err := <-failed
		require.ErrorIs(t, err, context.Canceled)
		require.NotErrorIs(t, err, protocol.ErrUncertain)
		require.Equal(t, []string{"b"}, drain(t, t.Context(), queue.New(srv.Client(t), path)))
	})
}

// Items that were acknowledged are not asked for when others are released.
func TestAcknowledgedEntriesAreNotAskedFor(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link, path := srv.Link(t), srv.Root(t)
		holder, q := queue.New(srv.Client(t), path), queue.New(link.Client(t), path)
		released := reserved(t, 2, holder, heldBy(holder))
		for _, it := range reserved(t, 5, q, heldBy(q)) {
			require.NoError(t, it.Ack(t.Context()))
		}
		for _, it := range released {
			require.NoError(t, it.Nack(t.Context()))
		}
		before := link.Count(recipestest.OpExists)
		require.Len(t, drain(t, t.Context(), q), 2)
		require.LessOrEqual(t, link.Count(recipestest.OpExists)-before, 2)
	})
}

// The ctx of Consume ends while an item is on its way. No function gets the item, and other
// consumers get it at once. It has had no attempt.
func TestItemThatComesAfterTheEndOfConsumeIsGivenBack(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		h := hold(t, srv, 0)
		offer(t, queue.New(h.operator, h.path), "x")
		h.link.Delay(10 * time.Millisecond)
		sent := h.link.Sent(recipestest.OpMulti, h.link.Count(recipestest.OpMulti)+1)
		ctx, cancel := context.WithCancel(t.Context())
		ended := suite.Later(func() error {
			return h.queue.Consume(ctx, 1, func(context.Context, *queue.Item) error {
				t.Error("called")
				return nil
			})
		})
		await(t, sent)
		cancel()
		require.ErrorIs(t, <-ended, context.Canceled)

		time.Sleep(time.Second)
		it, err := queue.New(h.operator, h.path).TryReserve(t.Context())
		require.NoError(t, err)
		require.Equal(t, 1, it.Attempt())
		require.NoError(t, it.Ack(t.Context()))
	})
}

// An Ack is refused, and the records are deleted before the claim is given up. The item comes back.
func TestClaimIsGivenUpWithoutTheRecords(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		h := hold(t, srv, 1)
		conn := suite.Session(t, h.operator).Conn()
		_, err := conn.SetACL(h.path, zk.WorldACL(zk.PermAll&^zk.PermDelete), -1)
		require.NoError(t, err)
		defer open(conn, h.path)

		h.link.Delay(10 * time.Millisecond)
		refused := h.link.Answered(recipestest.OpMulti, h.link.Count(recipestest.OpMulti)+1)
		done := suite.Later(func() error { return h.items[0].Ack(t.Context()) })
		await(t, refused)
		_, err = conn.SetACL(h.path, zk.WorldACL(zk.PermAll), -1)
		require.NoError(t, err)
		deleteRecords(t, h.operator, h.path)
		require.ErrorIs(t, <-done, zk.ErrNoAuth)
		require.Empty(t, children(t, h.operator, h.path+"/"+h.items[0].ID()))
	})
}

// Of several Acks in one transaction the first has no claim any more. The others are not held up,
// and the loss is reported as one.
func TestFirstItemOfABatchIsLost(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		h := hold(t, srv, 3)
		node := h.path + "/" + h.items[1].ID()
		require.NoError(t, suite.Session(t, h.operator).Conn().Delete(node+"/"+claimOf(h.items[1]), -1))
		h.link.Delay(time.Millisecond) // and the loss is heard of later than that
		var acked [3]<-chan error
		for i, it := range h.items {
			acked[i] = suite.Later(func() error { return it.Ack(t.Context()) })
			synctest.Wait()
		}
		require.NoError(t, <-acked[0])
		require.ErrorContains(t, <-acked[1], "not reserved by this item")
		require.NoError(t, <-acked[2])
		require.Equal(t, []string{"000002"}, drain(t, t.Context(), queue.New(h.operator, h.path)))
	})
}

// An item that fits into the request that reserves it, and not into one that moves it, returns to
// its place.
func TestItemTooLargeToBeMoved(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		operator := srv.Client(t)
		path := lasting(t, operator, srv.Root(t)+"/q")
		q := queue.New(srv.Client(t), path)
		var it *queue.Item
		for size := 1<<20 - 250; it == nil; size -= 20 {
			_, err := suite.Session(t, operator).Conn().Create(
				path+"/qn-", make([]byte, size), zk.FlagSequence, zk.WorldACL(zk.PermAll))
			require.NoError(t, err)
			if it, err = q.TryReserve(t.Context()); err != nil {
				require.ErrorIs(t, err, protocol.ErrTooLarge)
				require.NoError(t, poll(t.Context(), q))
			}
		}
		id := it.ID()
		require.ErrorIs(t, it.Nack(t.Context(), queue.AtTail()), protocol.ErrTooLarge)
		it, err := queue.New(operator, path).TryReserve(t.Context())
		require.NoError(t, err)
		require.Equal(t, id, it.ID())
		require.NoError(t, it.Ack(t.Context()))
	})
}

// A consumer that has only taken entries, and then reserves one, is lost. Others that wait get the
// item as soon as the session is over.
func TestItemOfAConsumerThatHasTakenBefore(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		client := srv.Client(t)
		path := lasting(t, srv.Client(t), srv.Root(t)+"/q")
		q, other := queue.New(client, path), queue.New(srv.Client(t), path)
		offer(t, q, "a", "b")
		require.NoError(t, poll(t.Context(), q))
		it := reserve(t, q)
		got := suite.Later(func() *queue.Item {
			it, _ := other.Reserve(suite.Lasting(t))
			return it
		})
		synctest.Wait()

		srv.ExpireSession(suite.Session(t, client).ID())
		began := time.Now()
		again := <-got
		require.NotNil(t, again)
		require.Less(t, time.Since(began), time.Second)
		require.Equal(t, it.ID(), again.ID())
		require.NoError(t, again.Ack(t.Context()))
	})
}

// An entry that was read ahead gets a child of a foreign client, and so cannot be removed. It is
// passed over.
func TestEntryWithAChildIsPassedOver(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		operator := srv.Client(t)
		path := lasting(t, operator, srv.Root(t)+"/q")
		q := queue.New(srv.Client(t), path)
		ids, err := q.OfferAll(t.Context(), [][]byte{[]byte("a"), []byte("b"), []byte("c")})
		require.NoError(t, err)
		require.NoError(t, poll(t.Context(), q))
		synctest.Wait()
		create(t, operator, path+"/"+ids[1]+"/foreign", "")

		data, err := q.Poll(t.Context())
		require.NoError(t, err)
		require.Equal(t, "c", string(data))
		require.ErrorIs(t, poll(t.Context(), q), queue.ErrEmpty)
		require.NoError(t, suite.Session(t, operator).Conn().Delete(path+"/"+ids[1]+"/foreign", -1))
		require.Equal(t, []string{"b"}, drain(t, t.Context(), queue.New(operator, path)))
	})
}

// The claims of a session may take all that is granted, to the byte. Room for exactly one more lets
// Items go on. A call that finds no room does not end another one of the same round.
func TestClaimsThatTakeAllThatIsGranted(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		const most, each = 100, 400_000 / 100 // bytes
		ctx, root := suite.Lasting(t), srv.Root(t)
		path := root + "/" + strings.Repeat("q", each-20-len(root)-1-len("/qn-0000000000/")-25)
		link := srv.Link(t)
		q := queue.New(link.Client(t), lasting(t, srv.Client(t), path))
		fill(t, q, most+3)
		var items []*queue.Item
		for range most {
			it, err := q.TryReserve(ctx)
			require.NoError(t, err)
			giveBack(t, it)
			require.Len(t, it.Check().Path, each-20)
			items = append(items, it)
		}
		_, err := q.TryReserve(ctx)
		require.ErrorIs(t, err, queue.ErrTooManyItems)

		got := suite.Later(func() *queue.Item {
			for it := range q.Items(ctx) {
				return it
			}
			return nil
		})
		synctest.Wait()
		require.NoError(t, items[0].Ack(ctx))
		it := suite.Wait(t, got)
		require.NotNil(t, it)
		giveBack(t, it)
		require.NoError(t, it.Err())

		link.Delay(10 * time.Millisecond)
		first := suite.Later(func() error { return poll(ctx, q) })
		synctest.Wait()
		reserved := suite.Later(func() error { _, err := q.TryReserve(ctx); return err })
		synctest.Wait()
		second := suite.Later(func() error { return poll(ctx, q) })
		require.NoError(t, <-first)
		require.ErrorIs(t, <-reserved, queue.ErrTooManyItems)
		require.NoError(t, <-second)
	})
}
