package queue_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/queue"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// create creates a persistent node with these permissions for all.
func create(t *testing.T, c *protocol.Client, path, data string, permissions int32) {
	t.Helper()
	_, err := suite.Session(t, c).Conn().Create(path, []byte(data), 0, zk.WorldACL(permissions))
	require.NoError(t, err)
}

// consumed is a queue with n entries.
func consumed(t *testing.T, srv *recipestest.Server, n int, opts ...queue.Option) (q *queue.Queue, client *protocol.Client, path string) {
	t.Helper()
	operator := srv.Client(t)
	path = lasting(t, operator, srv.Root(t)+"/q")
	if n > 0 {
		_, err := queue.New(operator, path).OfferAll(t.Context(), numbered(0, n))
		require.NoError(t, err)
	}
	client = srv.Client(t)
	return queue.New(client, path, opts...), client, path
}

func TestConsume(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		const workers, n = 4, 40
		q, client, path := consumed(t, srv, n)
		ctx, cancel := context.WithCancel(patient(t))
		defer cancel()
		var busy, most, done atomic.Int32
		err := q.Consume(ctx, workers, func(ctx context.Context, it *queue.Item) error {
			now := busy.Add(1)
			defer busy.Add(-1)
			for m := most.Load(); now > m && !most.CompareAndSwap(m, now); m = most.Load() {
			}

			if it.Attempt() == 1 && strings.HasSuffix(string(it.Data()), "7") {
				return errors.New("not now")
			}

			if done.Add(1) == n {
				cancel()
			}
			return nil
		})
		require.NoError(t, err)
		require.LessOrEqual(t, most.Load(), int32(workers))
		require.Empty(t, entries(t, client, path))
	})
}

// An item that always fails is tried less and less often. It does not hold up others.
func TestConsumeOfAPoisonItem(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		dead := queue.New(srv.Client(t), srv.Root(t)+"/dead")
		var delays []int
		q, client, path := consumed(t, srv, 5, queue.WithDeadLetter(dead, 4),
			queue.WithRetryDelay(func(attempt int) time.Duration {
				delays = append(delays, attempt)
				return time.Duration(attempt) * time.Minute
			}))
		ctx := suite.Within(t, 20*time.Minute)
		var poison []time.Time
		others := 0
		err := q.Consume(ctx, 1, func(_ context.Context, it *queue.Item) error {
			if string(it.Data()) == "000000" {
				poison = append(poison, time.Now())
				return errors.New("poison")
			}

			others++
			return nil
		})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 4, others)
		require.Len(t, poison, 4)
		for i := range 3 {
			pause := poison[i+1].Sub(poison[i])
			require.GreaterOrEqual(t, pause, time.Duration(i+1)*time.Minute)
		}

		require.Equal(t, []int{1, 2, 3, 4}, delays)
		require.Empty(t, entries(t, client, path))
		letter := reserve(t, dead)
		require.Contains(t, letter.Origin(), "poison")
		require.NoError(t, letter.Ack(t.Context()))
	})
}

// The default delays keep an item from being tried all the time.
func TestDefaultRetryDelays(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		q, _, _ := consumed(t, srv, 1)
		ctx := suite.Within(t, time.Hour)
		n := 0
		err := q.Consume(ctx, 2, func(context.Context, *queue.Item) error { n++; return errors.New("no") })
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Less(t, n, 80)
		require.Greater(t, n, 50)
	})
}

// An item that can't be moved comes back at once, but its worker pauses.
func TestConsumeWithoutThePermissionToMove(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		q, client, path := consumed(t, srv, 0)
		create(t, client, path+"/qn-2147483000", "x", zk.PermAll) // it has no number left to move to
		ctx := suite.Within(t, time.Hour)
		n := 0
		q.Consume(ctx, 1, func(context.Context, *queue.Item) error {
			n++
			time.Sleep(time.Second)
			return errors.New("no")
		})

		require.Less(t, n, 80)
		require.Greater(t, n, 50)
	})
}

// Consume returns the error that ended the workers, after their items are settled.
func TestConsumeReturnsErrors(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		q, client, _ := consumed(t, srv, 1)
		began := make(chan struct{})
		ended := make(chan error, 1)
		go func() {
			ended <- q.Consume(t.Context(), 2, func(held context.Context, _ *queue.Item) error {
				close(began)
				<-held.Done()
				return nil
			})
		}()

		suite.Wait(t, began)
		synctest.Wait()
		client.Close()
		require.ErrorIs(t, suite.Wait(t, ended), protocol.ErrClosed)

		require.ErrorContains(t, q.Consume(t.Context(), 0, nil), "0 workers")
		require.ErrorContains(t, q.Consume(t.Context(), 1, nil), "nil")
		bad := queue.New(client, "/q", queue.WithRetryDelay(nil))
		err := bad.Consume(t.Context(), 1, func(context.Context, *queue.Item) error { return nil })
		require.ErrorContains(t, err, "retry delays")
	})
}

// A function may settle its item itself.
func TestFunctionThatSettlesItsItem(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		q, client, path := consumed(t, srv, 2)
		ctx, cancel := context.WithCancel(t.Context())
		n := 0
		err := q.Consume(ctx, 1, func(ctx context.Context, it *queue.Item) error {
			switch n++; n {
			case 1:
				var none context.Context
				require.Error(t, it.Nack(none))
				require.Error(t, it.Nack(ctx, queue.After(-1)))
				require.NoError(t, it.Ack(ctx), "a bad argument decides nothing")
			case 2:
				require.NoError(t, it.Nack(ctx, queue.AtTail()))
				cancel()
			}
			return nil
		})
		require.NoError(t, err)
		require.Len(t, entries(t, client, path), 1)
	})
}

// A record was written by hand. The delay after a failure doesn't panic.
func TestConsumeOfANegativeAttempt(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		q := b.queue()
		offer(t, q, "x")
		require.NoError(t, b.reserve(q).Nack(t.Context()))
		_, err := b.conn().Set(b.path+"/zkrecipes/returned/"+firstID, []byte("{\"attempts\":-2}\n"), -1)
		require.NoError(t, err)
		ctx, stop := context.WithCancel(t.Context())
		require.NoError(t, q.Consume(ctx, 1, func(_ context.Context, it *queue.Item) error {
			if it.Attempt() < 1 {
				return errors.New("not now")
			}
			stop()
			return nil
		}))
	})
}
