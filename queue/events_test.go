package queue_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
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

// Callers of one session never collide, and those of several sessions seldom do (it depends on how
// the last entries are shared).
func TestTakersSeldomCollide(t *testing.T) {
	require.Zero(t, collisionsOf(t, 1))
	fewest := int64(1000)
	for range 5 {
		fewest = min(fewest, collisionsOf(t, 8))
	}
	require.Less(t, fewest, int64(50))
}

// collisionsOf returns how often so many sessions collide that take a thousand entries.
func collisionsOf(t *testing.T, sessions int) int64 {
	var collided collisions
	bubble(t, func(t *testing.T, b *bench) {
		fill(t, b.queue(), 1000)
		var wait suite.Group
		for range sessions {
			link := b.srv.Link(t)
			q := queue.New(link.Client(t).With(protocol.WithObserver(&collided)), b.path)
			link.Delay(time.Millisecond)
			for range 8 {
				wait.Go(func() (err error) {
					for err == nil {
						err = poll(t.Context(), q)
					}
					return err
				})
			}
		}
		require.ErrorIs(t, wait.Wait(), queue.ErrEmpty)
	})
	return collided.Load()
}

// Collisions are counted.
type collisions struct{ atomic.Int64 }

func (c *collisions) Observe(e protocol.Event) {
	if e.Kind == protocol.EventCollided {
		c.Add(1)
	}
}
