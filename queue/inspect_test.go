package queue_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/internal/zkwire"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/queue"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// The node of the records has number 0.
const firstID, secondID = "qn-0000000001", "qn-0000000002"

// list returns the entries that List yields.
func list(t testing.TB, q *queue.Queue) (all []queue.Info) {
	t.Helper()
	for info, err := range q.List(suite.Lasting(t)) {
		require.NoError(t, err)
		all = append(all, info)
	}
	return all
}

func idsOf(all []queue.Info) (ids []string) {
	for _, info := range all {
		ids = append(ids, info.ID)
	}
	return ids
}

func length(t testing.TB, q *queue.Queue) int {
	t.Helper()
	n := suite.Got(q.Len(suite.Lasting(t)))(t)
	return n
}

// A long list is read in pieces, as far as the loop goes.
func TestListOfThousands(t *testing.T) {
	suite.EmbeddedAndReal(t, func(t *testing.T, srv *recipestest.Server) {
		link := srv.Link(t)
		c := link.Client(t)
		path := lasting(t, c, srv.Root(t)+"/q")
		q := queue.New(c, path)
		require.Empty(t, list(t, queue.New(c, path+"/none")))
		ids := suite.Got(q.OfferAll(t.Context(), numbered(0, 2000)))(t)
		require.Equal(t, ids, idsOf(list(t, q)))
		require.Equal(t, 2000, length(t, q))

		reads := link.Count(recipestest.OpExists)
		for info, err := range q.List(t.Context()) {
			require.NoError(t, err)
			require.Equal(t, firstID, info.ID)
			break
		}

		require.LessOrEqual(t, link.Count(recipestest.OpExists)-reads, 64)

		// List leaves out entries that go before it reads them.
		other := queue.New(srv.Client(t), path)
		var found []string
		for info, err := range q.List(t.Context()) {
			require.NoError(t, err)
			if found = append(found, info.ID); len(found) == 1 {
				require.Len(t, drain(t, patient(t), other), 2000)
				suite.CatchUp(t, c)
			}
		}

		require.Equal(t, ids[:64], found)
	})
}

func TestRemove(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		operator := srv.Client(t)
		path := lasting(t, operator, srv.Root(t)+"/q")
		q, other := queue.New(operator, path), queue.New(srv.Client(t), path)
		offer(t, other, "a", "b", "c")
		it := reserve(t, other)
		require.NoError(t, q.Remove(t.Context(), it.ID()))
		suite.Wait(t, it.Done())
		require.ErrorIs(t, it.Err(), protocol.ErrLost)
		require.ErrorIs(t, it.Ack(t.Context()), protocol.ErrLost)
		require.NoError(t, q.Remove(t.Context(), secondID))

		// A node of others can be called like an ID, but is no entry.
		create(t, operator, path+"/dead-letters", "", zk.PermAll)
		for _, gone := range []string{it.ID(), secondID, "item-1-2-3-4--0000000009", "dead-letters"} {
			err := q.Remove(t.Context(), gone)
			require.ErrorIs(t, err, zk.ErrNoNode)
			require.ErrorContains(t, err, gone)
		}

		require.Equal(t, []string{"c"}, drain(t, patient(t), q))
	})
}

func TestFreeOfWhatIsNotReserved(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		c := srv.Client(t)
		path := lasting(t, c, srv.Root(t)+"/q")
		q := queue.New(c, path)
		err := q.Free(t.Context(), firstID)
		require.ErrorIs(t, err, zk.ErrNoNode)
		require.ErrorContains(t, err, "no entry")
		offer(t, q, "x")
		err = q.Free(t.Context(), firstID)
		require.ErrorIs(t, err, zk.ErrNoNode)
		require.ErrorContains(t, err, "not reserved")
		require.Equal(t, []string{"x"}, drain(t, patient(t), q))
	})
}

func TestDrained(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		c := srv.Client(t)
		path := lasting(t, c, srv.Root(t)+"/q")
		q, other := queue.New(c, path), queue.New(srv.Client(t), path)
		create(t, c, path+"/README", "", zk.PermAll)
		require.NoError(t, q.Drained(t.Context()))
		require.NoError(t, queue.New(c, path+"/none").Drained(t.Context()))

		later := suite.Got(q.OfferAfter(t.Context(), time.Hour, nil))(t)
		ids := suite.Got(q.OfferAll(t.Context(), numbered(0, 2)))(t)
		drained := suite.Later(func() error { return q.Drained(patient(t)) })
		it := reserve(t, queue.New(c, path))
		require.NoError(t, other.Remove(t.Context(), later))
		require.NoError(t, other.Remove(t.Context(), ids[1]))
		select {
		case err := <-drained:
			t.Fatal("not drained yet", err)
		default:
		}

		require.NoError(t, it.Ack(t.Context()))
		require.NoError(t, suite.Wait(t, drained))
	})
}

// An entry that may not be read is waited for all the same.
func TestDrainedOfWhatMayNotBeRead(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		link := srv.Link(t)
		c := link.Client(t)
		path := lasting(t, c, srv.Root(t)+"/q")
		q := queue.New(c, path)
		create(t, c, path+"/"+firstID, "", zk.PermAll&^zk.PermRead)
		listed := link.Answered(recipestest.OpGetChildren, link.Count(recipestest.OpGetChildren)+2)
		drained := suite.Later(func() error { return q.Drained(patient(t)) })
		suite.Wait(t, listed)
		require.NoError(t, suite.Session(t, c).Conn().Delete(path+"/"+firstID, -1))
		require.NoError(t, suite.Wait(t, drained))
	})
}

// What may not be read is left out, unless there is nothing else. What goes meanwhile is missing.
func TestLookingMeetsErrors(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link := srv.Link(t)
		c := link.Client(t)
		path := lasting(t, c, srv.Root(t)+"/q")
		q := queue.New(c, path, queue.WithMaxLength(2))
		create(t, c, path+"/"+firstID, "", zk.PermAll&^zk.PermRead)
		_, err := q.Peek(t.Context())
		require.ErrorIs(t, err, zk.ErrNoAuth)
		require.ErrorContains(t, err, firstID)
		require.Equal(t, firstID, list(t, q)[0].ID)
		_, err = q.OfferKey(t.Context(), "first", []byte("b"))
		require.NoError(t, err)
		data := suite.Got(q.Peek(t.Context()))(t)
		require.Equal(t, "b", string(data))

		link.Fail(recipestest.OpGetData, "", int32(zkwire.CodeBadArguments), 9)
		for _, err = range q.List(t.Context()) {
		}
		require.ErrorIs(t, err, zk.ErrBadArguments)
		link.Fail(recipestest.OpGetData, "", 0, 0)
		keys := path + "/zkrecipes/keys"
		link.Fail(recipestest.OpExists, keys+"/"+suite.Children(t, c, keys)[0]+"/second", int32(zkwire.CodeNoAuth), 1)
		_, err = q.OfferKey(t.Context(), "second", nil)
		require.ErrorIs(t, err, zk.ErrNoAuth, "though the queue is full")

		it := reserve(t, q)
		link.Fail(recipestest.OpMulti, "", int32(zkwire.CodeNoNode), 1)
		require.ErrorContains(t, q.Free(t.Context(), it.ID()), "not reserved any more")
		require.NoError(t, it.Ack(t.Context()))
	})
}

// The request of a Remove is lost, and the entry moves before the client can look. The Remove goes
// on until the entry is gone, and it ends in a busy queue without that entry.
func TestRemoveFollowsAnEntryThatMoves(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		link, q := b.linked()
		other := b.queue()
		for _, reserved := range []bool{false, true} {
			offer(t, q, "a", "b")
			id := list(t, q)[0].ID
			var it *queue.Item
			if reserved {
				it = b.reserve(other)
			}
			when(link, first("delete"), func() {
				link.Cut()
				defer link.Heal()
				if reserved {
					require.NoError(t, it.Nack(t.Context()))
				} else {
					it = b.reserve(other)
				}
			})
			require.NoError(t, q.Remove(t.Context(), id))
			require.Equal(t, []string{"b"}, drain(t, t.Context(), q))
			require.Error(t, it.Ack(t.Context()))
		}

		ctx, stop := context.WithCancel(t.Context())
		link.Delay(time.Millisecond)
		offer(t, q, "x")
		busy := suite.Later(func() error {
			return other.Consume(ctx, 2, func(context.Context, *queue.Item) error { return errors.New("again") })
		})
		require.ErrorIs(t, q.Remove(t.Context(), "qn-0000009999"), zk.ErrNoNode)
		stop()
		require.NoError(t, suite.Wait(t, busy))
		require.NoError(t, q.Remove(t.Context(), list(t, q)[0].ID))
	})
}
