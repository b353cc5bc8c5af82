package queue_test

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/queue"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// An entry with a delay has a number, and another name than the one that a lookout watches for. So
// that watch never fires.
func TestNumbersOfOtherEntriesLeaveFewWatches(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/queue"
		q, other := queue.New(srv.Client(t), path), queue.New(srv.Client(t), path)
		const rounds, most = 300, 150
		for range rounds {
			taken := suite.Later(func() error { _, err := q.Take(t.Context()); return err })
			time.Sleep(time.Second) // until it waits
			_, err := other.OfferAfter(t.Context(), time.Millisecond, nil)
			require.NoError(t, err)
			require.NoError(t, suite.Wait(t, taken))
		}

		time.Sleep(2 * time.Second) // until the receipts are gone
		require.Less(t, watchesAt(t, srv), most)
	})
}

// So many numbers have gone to entries with other names that a consumer watches all entries. It
// still gets what is offered, with a delay or without, and what is put back, also beside another
// consumer and in its next session.
func TestConsumerThatWatchesAllEntriesMissesNone(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, c := srv.Root(t)+"/queue", srv.Client(t)
		q, rival, producer := queue.New(c, path), queue.New(srv.Client(t), path), queue.New(srv.Client(t), path)
		waiting := func(q *queue.Queue) <-chan error {
			taken := suite.Later(func() error { _, err := q.Take(context.Background()); return err })
			time.Sleep(100 * time.Millisecond) // until it waits; a receipt that is new would wake it, too
			return taken
		}
		offer := func(delay time.Duration) {
			_, err := offerAfter(t.Context(), producer, delay)
			require.NoError(t, err)
		}
		soon := func(taken <-chan error) {
			t.Helper()
			time.Sleep(100 * time.Millisecond)
			require.Len(t, taken, 1)
			require.NoError(t, <-taken)
		}

		for range 110 {
			taken := waiting(q)
			offer(time.Millisecond)
			soon(taken)
		}
		for range 3 {
			taken := waiting(q)
			offer(0)
			soon(taken)

			first, second := waiting(q), waiting(rival)
			offer(0)
			offer(time.Millisecond)
			soon(first)
			soon(second)

			offer(0)
			item, err := rival.Reserve(t.Context())
			require.NoError(t, err)
			taken = waiting(q)
			require.NoError(t, item.Nack(t.Context()))
			soon(taken)
		}

		taken := waiting(q)
		srv.ExpireSession(suite.Session(t, c).ID())
		time.Sleep(time.Minute)
		require.Empty(t, taken)
		offer(0)
		soon(taken)
	})
}

func offerAfter(ctx context.Context, q *queue.Queue, delay time.Duration) (string, error) {
	if delay == 0 {
		return q.Offer(ctx, nil)
	}
	return q.OfferAfter(ctx, delay, nil)
}

// watchesAt returns how many watches the server has.
func watchesAt(t *testing.T, srv *recipestest.Server) (n int) {
	t.Helper()
	c, err := srv.Dial("tcp", srv.ConnectString(), time.Second)
	require.NoError(t, err)
	defer c.Close()
	_, err = io.WriteString(c, "mntr")
	require.NoError(t, err)
	answer, err := io.ReadAll(c)
	require.NoError(t, err)
	_, rest, _ := strings.Cut(string(answer), "zk_watch_count\t")
	_, err = fmt.Sscan(rest, &n)
	require.NoError(t, err)
	return n
}
