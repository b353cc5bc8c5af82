package queue_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/queue"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

// An item that fails again and again is put off each time, and is counted.
func TestNackAfter(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path := lasting(t, srv.Client(t), srv.Root(t)+"/q")
		q := queue.New(srv.Client(t), path)
		offered := time.Now()
		id, err := q.Offer(t.Context(), []byte("poison"))
		require.NoError(t, err)
		time.Sleep(time.Second)

		const delay = time.Minute
		it := reserve(t, q)
		require.Equal(t, id, it.ID())
		for i, c := range []struct {
			opts  []queue.NackOption
			delay time.Duration
			moves bool
		}{
			{[]queue.NackOption{queue.After(delay)}, delay, true},
			{[]queue.NackOption{queue.After(delay), nil, queue.AtTail()}, delay, true},
			{[]queue.NackOption{queue.After(0)}, 0, true},
			{nil, 0, false},
			{[]queue.NackOption{queue.AtTail()}, 0, true},
		} {
			given := time.Now()
			require.NoError(t, it.Nack(t.Context(), c.opts...))
			again := reserveFor(t, q, 2*delay)
			require.GreaterOrEqual(t, time.Since(given), c.delay)
			require.Equal(t, c.moves, again.ID() != it.ID())
			require.Equal(t, "poison", string(again.Data()))
			require.Equal(t, i+2, again.Attempt())
			require.WithinDuration(t, offered, again.Since(), 10*time.Millisecond)
			require.Empty(t, again.Origin())
			it = again
		}
		require.NoError(t, it.Ack(t.Context()))
	})
}

func reserveFor(t *testing.T, q *queue.Queue, d time.Duration) *queue.Item {
	t.Helper()
	ctx, cancel := contextFor(t, d)
	defer cancel()
	it, err := q.Reserve(ctx)
	require.NoError(t, err)
	return it
}

func TestNackAtTail(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path := lasting(t, srv.Client(t), srv.Root(t)+"/q")
		q := queue.New(srv.Client(t), path)
		offer(t, q, "a", "b", "c")
		a := reserve(t, q)
		require.NoError(t, a.Nack(t.Context(), queue.AtTail()))
		var all []string
		for range 3 {
			it := reserve(t, q)
			all = append(all, string(it.Data()))
			if string(it.Data()) == "a" {
				require.Equal(t, 2, it.Attempt())
				require.NotEqual(t, a.ID(), it.ID())
				require.Equal(t, a.Since(), it.Since())
			}
			require.NoError(t, it.Ack(t.Context()))
		}
		require.Equal(t, []string{"b", "c", "a"}, all)
	})
}

func TestNackWithANegativeDelay(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		h := hold(t, srv, 1)
		packets := h.link.Count(recipestest.OpMulti)
		require.ErrorContains(t, h.items[0].Nack(t.Context(), queue.After(-1)), "negative")
		require.Equal(t, packets, h.link.Count(recipestest.OpMulti))
		require.NoError(t, h.items[0].Err())
		require.NoError(t, h.items[0].Ack(t.Context()))
	})
}

// An entry at the end of the numbers stays in its place.
func TestMovesLeaveNumbersForOthers(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		client := srv.Client(t)
		path := lasting(t, client, srv.Root(t)+"/q")
		create(t, client, path+"/qn-2147483000", "x")
		q := queue.New(client, path)
		it := reserve(t, q)
		require.ErrorIs(t, it.Nack(t.Context(), queue.AtTail()), protocol.ErrSequenceExhausted)
		again := reserve(t, q)
		require.Equal(t, it.ID(), again.ID())
		require.Equal(t, 2, again.Attempt())
		require.NoError(t, again.Ack(t.Context()))
	})
}

// A dead letter says where it is from and why, in its name.
func TestOriginOfDeadLetters(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fail func(t *testing.T, srv *recipestest.Server, c *protocol.Client, q *queue.Queue)
		want string
	}{
		"nack": {func(t *testing.T, _ *recipestest.Server, _ *protocol.Client, q *queue.Queue) {
			require.NoError(t, reserve(t, q).Nack(t.Context()))
			require.NoError(t, reserve(t, q).Nack(t.Context(), queue.AtTail())) // which it is too late for
		}, "given back"},
		"crash": {func(t *testing.T, srv *recipestest.Server, c *protocol.Client, q *queue.Queue) {
			for range 2 {
				it := reserve(t, q)
				srv.ExpireSession(suite.Session(t, c).ID())
				<-it.Done()
			}
			_, err := q.TryReserve(patient(t))
			require.ErrorIs(t, err, queue.ErrEmpty)
		}, "not acknowledged by its last consumer"},
		"consume": {func(t *testing.T, _ *recipestest.Server, _ *protocol.Client, q *queue.Queue) {
			require.NoError(t, reserve(t, q).Nack(t.Context()))
			consumeOne(t, q, errors.New("a/b\n-%2F 😀é"+strings.Repeat("x", 200)))
		}, "given back: a/b -%2F  é" + strings.Repeat("x", 77)},
	} {
		t.Run(name, func(t *testing.T) {
			suite.EmbeddedAndReal(t, func(t *testing.T, srv *recipestest.Server) {
				root := srv.Root(t)
				lasting(t, srv.Client(t), root+"/base")
				client := srv.Client(t)
				dead := queue.New(srv.Client(t), root+"/dead")
				q := queue.New(client, root+"/q", queue.WithDeadLetter(dead, 2))
				id, err := queue.New(srv.Client(t), root+"/q").Offer(t.Context(), []byte("x"))
				require.NoError(t, err)
				c.fail(t, srv, client, q)

				letter := reserve(t, dead)
				require.Equal(t, "x", string(letter.Data()))
				require.Equal(t, root+"/q/"+id+" after 2 attempts: "+c.want, letter.Origin())
				require.Equal(t, 1, letter.Attempt())
				require.Less(t, letter.Since(), time.Now().Add(time.Minute))
				require.NoError(t, letter.Nack(t.Context(), queue.AtTail()))
				letter = reserve(t, dead)
				require.Contains(t, letter.Origin(), c.want)
				require.NoError(t, letter.Ack(t.Context()))
				n, err := q.Len(t.Context())
				require.NoError(t, err)
				require.Zero(t, n)
			})
		})
	}
}

// A letter that is too large for its destination, or has no number there, stays where it is.
func TestDeadLettersAtTheEndOfTheirNumbers(t *testing.T) {
	t.Parallel()
	srv := recipestest.Start(t, recipestest.WithConfig(embedded.Config{}))
	client, root := srv.Client(t), srv.Root(t)
	path, letters := lasting(t, client, root+"/q"), lasting(t, client, root+"/dead")
	create(t, client, letters+"/qn-2147483647", "old")
	require.NoError(t, srv.Embedded().SetSequence(letters, 1<<31-1<<20+1))
	q := queue.New(client, path, queue.WithDeadLetter(queue.New(client, letters), 1))
	offer(t, q, "x", "good")
	it := reserve(t, q)
	require.ErrorIs(t, it.Nack(t.Context()), protocol.ErrSequenceExhausted)
	good := reserve(t, q)
	require.Equal(t, "good", string(good.Data()))
	require.NoError(t, good.Ack(t.Context()))
	require.Equal(t, []string{it.ID()}, entries(t, client, path))
}
