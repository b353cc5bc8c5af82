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

// What a producer knows of a queue's length is of that queue, and not of another one that was
// created at the same path and has had as many transactions.
func TestLengthOfAnotherQueueAtThePath(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		operator := srv.Client(t)
		path := lasting(t, operator, srv.Root(t)+"/q")
		bounded := queue.WithMaxLength(2)
		q, other := queue.New(srv.Client(t), path, bounded), queue.New(srv.Client(t), path, bounded)
		offer(t, q, "a")
		time.Sleep(2 * time.Second) // by then its receipt has gone
		wipe(t, operator, path)
		_, err := other.OfferAll(t.Context(), [][]byte{[]byte("b"), []byte("c")})
		require.NoError(t, err)

		_, err = q.Offer(t.Context(), []byte("d"))
		require.ErrorIs(t, err, queue.ErrFull)
		require.Equal(t, []string{"b", "c"}, drain(t, t.Context(), other))
	})
}

// racing are two producers near the bound, of which the first, over the link, has collided.
func racing(t *testing.T, srv *recipestest.Server, observers ...protocol.Observer) (link *recipestest.Link, q, other *queue.Queue) {
	t.Helper()
	path := lasting(t, srv.Client(t), srv.Root(t)+"/q")
	link = srv.Link(t)
	c := link.Client(t)
	for _, o := range observers {
		c = c.With(protocol.WithObserver(o))
	}
	q = queue.New(c, path, queue.WithMaxLength(900))
	other = queue.New(srv.Client(t), path, queue.WithMaxLength(900))
	offer(t, q, "a")
	offer(t, other, "b")
	offer(t, q, "c")
	return link, q, other
}

// Producers that have collided take turns for a while. Once one of them is alone it does not, and
// an offer is one request again.
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
		require.NoError(t, <-busy)
	})
}

// A length that may not be read after a collision ends the call, rather than the old one being
// taken for it.
func TestLengthThatMayNotBeReadAfterACollision(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link, path := srv.Link(t), srv.Root(t)
		q := queue.New(link.Client(t), path, queue.WithMaxLength(5))
		other := queue.New(srv.Client(t), path, queue.WithMaxLength(5))
		offer(t, q, "a")
		offer(t, other, "b")
		link.Fail(recipestest.OpExists, path, int32(zkwire.CodeNoAuth), 1)
		require.ErrorIs(t, offerX(t.Context(), q), zk.ErrNoAuth)
		offer(t, q, "c")
		require.Equal(t, []string{"a", "b", "c"}, drain(t, t.Context(), other))
	})
}

// The numbers seem to be used up, and it may not be asked whether they still are.
func TestExhaustedQueueThatMayNotBeAsked(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link := srv.Link(t)
		path := lasting(t, srv.Client(t), srv.Root(t)+"/q")
		q := queue.New(link.Client(t), path)
		offer(t, q, "a")
		require.NoError(t, srv.Embedded().SetSequence(path, 1<<31-1<<20-1))
		offer(t, q, "b")
		require.ErrorIs(t, offerX(t.Context(), q), protocol.ErrSequenceExhausted)
		link.Fail(recipestest.OpSync, path, int32(zkwire.CodeNoAuth), 1)
		require.ErrorIs(t, offerX(t.Context(), q), zk.ErrNoAuth)
		require.ErrorIs(t, offerX(t.Context(), q), protocol.ErrSequenceExhausted)
		require.Len(t, drain(t, t.Context(), q), 2)
	})
}

// Each number is used, up to the last one.
func TestLastNumberIsUsed(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path := lasting(t, srv.Client(t), srv.Root(t)+"/q")
		require.NoError(t, srv.Embedded().SetSequence(path, 1<<31-1<<20-1-2))
		q := queue.New(srv.Client(t), path)
		offer(t, q, "a")
		id, err := q.Offer(t.Context(), []byte("b"))
		require.NoError(t, err)
		require.Equal(t, "qn-2146435071", id)
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
