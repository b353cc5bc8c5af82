package queue_test

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/queue"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// counter counts entries by the kind of event.
type counter map[protocol.EventKind]int

func (c counter) Observe(e protocol.Event) { c[e.Kind] += e.Count }

// An observer hears of offers, takes, redeliveries, collisions and dead letters.
func TestEventsOfAQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := recipestest.Start(t, recipestest.WithInMemory())
		root, events := srv.Root(t), counter{}
		client := srv.Client(t).With(protocol.WithObserver(events))
		dead := queue.New(srv.Client(t), root+"/dead")
		q := queue.New(client, root+"/q", queue.WithDeadLetter(dead, 2))

		_, err := q.OfferAll(t.Context(), numbered(0, 5))
		require.NoError(t, err)
		_, err = q.PollN(t.Context(), 2)
		require.NoError(t, err)
		for range 2 {
			require.NoError(t, reserve(t, q).Nack(t.Context()))
		}
		_, err = q.Take(t.Context())
		require.NoError(t, err)

		synctest.Wait()
		require.Equal(t, 5, events[protocol.EventOffered])
		require.Equal(t, 3, events[protocol.EventTaken])
		require.Equal(t, 1, events[protocol.EventRedelivered])
		require.Equal(t, 1, events[protocol.EventDeadLettered])
	})
}

// An observer hears what has become of an item, which is not taken before.
func TestSettledItemsAreEvents(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := recipestest.Start(t, recipestest.WithInMemory())
		events := counter{}
		q := queue.New(srv.Client(t).With(protocol.WithObserver(events)), srv.Root(t)+"/q")
		offer(t, q, "x", "y")
		require.NoError(t, reserve(t, q).Ack(t.Context()))
		require.NoError(t, reserve(t, q).Nack(t.Context()))

		synctest.Wait()
		require.Equal(t, 1, events[protocol.EventAcknowledged])
		require.Equal(t, 1, events[protocol.EventReturned])
		require.NotContains(t, events, protocol.EventTaken)
	})
}

// An observer hears that another client was faster with an entry which a consumer has read ahead. A
// consumer that lists the queue at that moment does not collide, and this may happen now and then.
func TestCollisionIsAnEvent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := recipestest.Start(t, recipestest.WithInMemory())
		root, events := srv.Root(t), counter{}
		q := queue.New(srv.Client(t).With(protocol.WithObserver(events)), root+"/q")
		operator := srv.Conn(t)
		ids, err := q.OfferAll(t.Context(), numbered(0, 60))
		require.NoError(t, err)
		synctest.Wait()

		for i := 0; events[protocol.EventCollided] == 0; i += 2 {
			require.Less(t, i+1, len(ids), "no collision")
			require.NoError(t, operator.Delete(root+"/q/"+ids[i], -1))
			_, err = q.Poll(t.Context())
			require.NoError(t, err)
			synctest.Wait()
		}
	})
}
