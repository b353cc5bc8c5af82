package queue_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/queue"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// An item that no consumer has seen has had no attempt, however often its reservation was given up
// while the request was on its way.
func TestReservationsThatAreGivenUpAreNoAttempts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const attempts = 3
		srv := recipestest.Start(t, recipestest.WithInMemory())
		root := srv.Root(t)
		path := lasting(t, srv.Client(t), root+"/q")
		dead := queue.New(srv.Client(t), root+"/dead")
		offer(t, queue.New(srv.Client(t), path), "never seen")
		link := srv.Link(t)
		client := link.Client(t)
		q := queue.New(client, path, queue.WithDeadLetter(queue.New(client, root+"/dead"), attempts))
		link.Delay(100 * time.Millisecond)

		transactions := link.Count(recipestest.OpMulti)
		for range attempts {
			ctx, cancel := context.WithCancel(t.Context())
			sent := link.Sent(recipestest.OpMulti, link.Count(recipestest.OpMulti)+1)
			go func() { <-sent; cancel() }()
			_, err := q.Reserve(ctx)
			require.ErrorIs(t, err, context.Canceled)
			time.Sleep(5 * time.Second) // it is given back
		}

		require.GreaterOrEqual(t, link.Count(recipestest.OpMulti)-transactions, attempts)

		it, err := q.TryReserve(t.Context())
		require.NoError(t, err)
		require.Equal(t, 1, it.Attempt())
		require.NoError(t, it.Ack(t.Context()))
		_, err = dead.Peek(t.Context())
		require.ErrorIs(t, err, queue.ErrEmpty)
	})
}
