package queue_test

import (
	"context"
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

// A producer must not take the known length of a queue for the length of a later queue at the same
// path (which has had as many transactions).
func TestLengthOfAnotherQueueAtThePath(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		operator := srv.Client(t)
		path := lasting(t, operator, srv.Root(t)+"/q")
		bounded := queue.WithMaxLength(2)
		q, other := queue.New(srv.Client(t), path, bounded), queue.New(srv.Client(t), path, bounded)
		offer(t, q, "a")
		time.Sleep(2 * time.Second) // until its receipt is gone
		wipe(t, operator, path)
		_, err := other.OfferAll(t.Context(), [][]byte{[]byte("b"), []byte("c")})
		require.NoError(t, err)

		_, err = q.Offer(t.Context(), []byte("d"))
		require.ErrorIs(t, err, queue.ErrFull)
		require.Equal(t, []string{"b", "c"}, drain(t, t.Context(), other))
	})
}

// racing returns two producers near the bound. The first (over the link) has collided.
func racing(t *testing.T, srv *recipestest.Server) (link *recipestest.Link, q, other *queue.Queue) {
	t.Helper()
	path := lasting(t, srv.Client(t), srv.Root(t)+"/q")
	link = srv.Link(t)
	q = queue.New(link.Client(t), path, queue.WithMaxLength(900))
	other = queue.New(srv.Client(t), path, queue.WithMaxLength(900))
	offer(t, q, "a")
	offer(t, other, "b")
	offer(t, q, "c")
	return link, q, other
}

// Producers near the bound take turns. A producer that is alone again needs one request for an
// offer.
func TestTurnsEndWithTheOtherProducers(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link, q, _ := racing(t, srv)
		for range 30 { // 3 seconds
			offer(t, q, "x")
			time.Sleep(100 * time.Millisecond)
		}
		before := link.Count(recipestest.OpAny)
		offer(t, q, "x")
		require.Equal(t, 1, link.Count(recipestest.OpAny)-before)
	})
}

// A producer that has the turn, and never pauses, sees the queue become short. From then on others
// append without a turn, so the length that it knows is no limit any more.
func TestTurnEndsFarFromTheBound(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, bounded := srv.Root(t)+"/q", queue.WithMaxLength(3000)
		q, other := queue.New(srv.Client(t), path, bounded), queue.New(srv.Client(t), path, bounded)
		append := func(q *queue.Queue, n int) error {
			_, err := q.OfferAll(t.Context(), numbered(0, n))
			return err
		}
		for _, n := range []int{1000, 1000, 900} {
			require.NoError(t, append(q, n))
		}
		require.Len(t, drain(t, t.Context(), other), 2900)
		require.NoError(t, append(q, 200))
		require.NoError(t, append(other, 1000))
		require.NoError(t, append(other, 700))
		require.NoError(t, append(q, 1000))
		require.ErrorIs(t, append(q, 1000), queue.ErrFull)
	})
}

// A producer whose callers never pause gives its turn to others in time.
func TestTurnOfABusyProducerEnds(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link, q, other := racing(t, srv)
		link.Delay(5 * time.Millisecond)
		ctx, cancel := context.WithCancel(t.Context())
		busy := suite.Later(func() error {
			return together(3, func() error {
				for ctx.Err() == nil {
					if _, err := q.Offer(t.Context(), []byte("x")); err != nil {
						return err
					}
				}
				return nil
			})
		})

		for range 3 {
			time.Sleep(100 * time.Millisecond)
			began := time.Now()
			offer(t, other, "y")
			require.Less(t, time.Since(began), 200*time.Millisecond)
		}

		cancel()
		require.NoError(t, suite.Wait(t, busy))
	})
}

// Each number is used, even the last. Then the server refuses to say whether they are still used
// up.
func TestExhaustedQueue(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link := srv.Link(t)
		path := lasting(t, srv.Client(t), srv.Root(t)+"/q")
		q := queue.New(link.Client(t), path)
		offer(t, q, "a")
		require.NoError(t, srv.Embedded().SetSequence(path, 1<<31-1<<20-1))
		id := suite.Got(q.Offer(t.Context(), []byte("b")))(t)
		require.Equal(t, "qn-2146435071", id)
		require.ErrorIs(t, offerX(t.Context(), q), protocol.ErrSequenceExhausted)
		link.Fail(recipestest.OpSync, path, int32(zkwire.CodeNoAuth), 1)
		require.ErrorIs(t, offerX(t.Context(), q), zk.ErrNoAuth)
		require.ErrorIs(t, offerX(t.Context(), q), protocol.ErrSequenceExhausted)
		require.Len(t, drain(t, t.Context(), q), 2)
	})
}

func TestKeysMayBeRememberedForASecond(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		q := queue.New(srv.Client(t), srv.Root(t), queue.WithKeyRetention(time.Second))
		require.NoError(t, offerKeyK(t.Context(), q))
	})
}

// Offers that wake a producer and are gone before its next round don't make it keep its turn.
func TestTurnEndsAfterOffersThatAreGone(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		_, q, other := racing(t, srv)
		for range 2 {
			time.Sleep(time.Millisecond)
			go q.Offer(suite.Asked(t.Context(), 2), []byte("gone"))
		}
		time.Sleep(time.Millisecond)
		began := time.Now()
		offer(t, other, "d")
		require.Less(t, time.Since(began), 500*time.Millisecond)
	})
}

// A full queue was deleted by hand, so there is room. Delayed entries need none.
func TestRoomOfADeletedQueue(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		q := b.queue(queue.WithMaxLength(1))
		offer(t, b.queue(), "a", "too many")
		require.ErrorIs(t, offerX(t.Context(), q), queue.ErrFull)
		_, err := q.OfferAfter(t.Context(), time.Second, nil)
		require.NoError(t, err)
		deleteAll(b.conn(), b.path)
		offer(t, q, "b")
		require.Equal(t, []string{"b"}, drain(t, t.Context(), q))
	})
}

// A producer need not be able to read the queue, nor the entry whose end makes room.
func TestRoomThatMayNotBeSeen(t *testing.T) {
	for _, node := range []string{"", "/" + firstID} {
		bubble(t, func(t *testing.T, b *bench) {
			create(t, b.client, b.path+"/"+firstID, "", zk.PermAll)
			_, err := b.conn().SetACL(b.path+node, zk.WorldACL(zk.PermAll&^zk.PermRead), -1)
			require.NoError(t, err)
			time.AfterFunc(10*time.Second, func() { b.conn().Delete(b.path+"/"+firstID, -1) })
			_, err = b.queue(queue.WithMaxLength(1)).OfferWait(t.Context(), []byte("x"))
			require.NoError(t, err)
			open(b.conn(), b.path)
			require.Equal(t, []string{"x"}, drain(t, t.Context(), b.queue()))
		})
	}
}
