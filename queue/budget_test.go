package queue_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/queue"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// A session has so many items and no more: Items and Consume wait until there is room.
func TestTooManyItems(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		const most = 400_000 / (1000 + 1 + 13 + 1 + 25 + 20)
		client := srv.Client(t)
		path := srv.Root(t)
		path = lasting(t, client, path+"/"+strings.Repeat("q", 1000-len(path)-1))
		q := queue.New(client, path)
		for i := 0; i < most+50; i += 50 {
			_, err := q.OfferAll(t.Context(), numbered(i, 50))
			require.NoError(t, err)
		}
		var items []*queue.Item
		for it, err := range q.Items(t.Context()) {
			require.NoError(t, err)
			if items = append(items, it); len(items) == most {
				break
			}
		}
		full := func() {
			t.Helper()
			_, err := q.TryReserve(t.Context())
			require.ErrorIs(t, err, queue.ErrTooManyItems)
			_, err = q.Reserve(t.Context())
			require.ErrorIs(t, err, queue.ErrTooManyItems)
		}
		full()

		// There is room after whatever ends an item.
		for i, end := range []func(*queue.Item){
			func(it *queue.Item) { require.NoError(t, it.Ack(t.Context())) },
			func(it *queue.Item) { require.NoError(t, it.Nack(t.Context())) },
			func(it *queue.Item) { require.NoError(t, it.Nack(t.Context(), queue.AtTail())) },
			func(it *queue.Item) {
				require.NoError(t, suite.Session(t, client).Conn().Delete(it.Check().Path, -1))
				<-it.Done()
				synctest.Wait()
			},
		} {
			end(items[i])
			items = append(items, reserve(t, q))
			full()
		}

		// Items and Consume wait for it.
		began := time.Now()
		time.AfterFunc(time.Minute, func() { _ = items[10].Ack(t.Context()) })
		for it, err := range q.Items(t.Context()) {
			require.NoError(t, err)
			require.NoError(t, it.Ack(t.Context()))
			break
		}
		require.Equal(t, time.Minute, time.Since(began).Round(time.Second))
		items = append(items, reserve(t, q))
		ctx, cancel := contextFor(t, time.Minute)
		defer cancel()
		calls := 0
		require.ErrorIs(t, q.Consume(ctx, 2, func(context.Context, *queue.Item) error { calls++; return nil }),
			context.DeadlineExceeded)
		require.Zero(t, calls)

		// What is over with the session takes nothing from the next one.
		srv.ExpireSession(suite.Session(t, client).ID())
		<-items[len(items)-1].Done()
		require.NoError(t, reserve(t, q).Ack(t.Context()))
	})
}
