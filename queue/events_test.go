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

// An observer receives events of offers, takes, returns, redeliveries, dead letters and
// acknowledgements.
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

		require.NoError(t, reserve(t, q).Ack(t.Context()))
		_, err = q.Take(t.Context())
		require.NoError(t, err)

		synctest.Wait()
		require.Equal(t, 5, events[protocol.EventOffered])
		require.Equal(t, 3, events[protocol.EventTaken])
		require.Equal(t, 1, events[protocol.EventReturned])
		require.Equal(t, 1, events[protocol.EventRedelivered])
		require.Equal(t, 1, events[protocol.EventDeadLettered])
		require.Equal(t, 1, events[protocol.EventAcknowledged])
	})
}

// An observer receives an event if another client was faster with an entry that a consumer had read
// ahead. (A consumer that lists the queue at that moment does not collide. This happens now and
// then.)
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
