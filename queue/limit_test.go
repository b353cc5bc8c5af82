package queue_test

import (
	"fmt"
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

func TestMaxLengthIsExact(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		c := srv.Client(t)
		path := lasting(t, c, srv.Root(t)+"/q")
		conn := suite.Session(t, c).Conn()
		_, err := conn.Set(path, []byte("theirs"), -1)
		require.NoError(t, err)
		const most, producers, each = 40, 4, 20
		results := make(chan error, producers*each)
		for range producers {
			q := queue.New(srv.Client(t), path, queue.WithMaxLength(most))
			for range each {
				go func() { _, err := q.Offer(t.Context(), []byte("x")); results <- err }()
			}
		}
		full := 0
		for range producers * each {
			if err := <-results; err != nil {
				require.ErrorIs(t, err, queue.ErrFull)
				full++
			}
		}
		require.Equal(t, producers*each-most, full)
		q := queue.New(c, path, queue.WithMaxLength(most))
		_, err = q.Poll(t.Context())
		require.NoError(t, err)
		_, err = q.OfferAll(t.Context(), numbered(0, 2))
		require.ErrorIs(t, err, queue.ErrFull)
		offer(t, q, "one")
		require.Len(t, drain(t, patient(t), q), most)
		data, _, err := conn.Get(path)
		require.NoError(t, err)
		require.Equal(t, "theirs", string(data))
	})
}

// A producer that knows the queue to be full looks whether it still is.
func TestOffersFitAgainOnceEntriesAreTaken(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path := lasting(t, srv.Client(t), srv.Root(t)+"/q")
		consumer, producer := queue.New(srv.Client(t), path), queue.New(srv.Client(t), path, queue.WithMaxLength(1))
		for range 3 {
			offer(t, producer, "x")
			_, err := producer.Offer(t.Context(), []byte("y"))
			require.ErrorIs(t, err, queue.ErrFull)
			require.Equal(t, []string{"x"}, drain(t, patient(t), consumer))
		}
	})
}

func TestSequenceExhausted(t *testing.T) {
	t.Parallel()
	srv := recipestest.Start(t)
	c := srv.Client(t)
	path := lasting(t, c, srv.Root(t)+"/q")
	q := queue.New(c, path)
	offer(t, q, "a")
	require.NoError(t, srv.Embedded().SetSequence(path, 1<<31-1<<20-1))
	offer(t, q, "b") // the last one
	for _, q := range []*queue.Queue{q, queue.New(c, path), queue.New(srv.Client(t), path)} {
		_, err := q.Offer(t.Context(), []byte("c"))
		require.ErrorIs(t, err, protocol.ErrSequenceExhausted)
	}
	// The way out: drain it, and delete its node.
	require.Equal(t, []string{"a", "b"}, drain(t, patient(t), q))
	wipe(t, c, path)
	id, err := q.Offer(t.Context(), []byte("c"))
	require.NoError(t, err)
	require.Equal(t, "qn-0000000001", id)
	require.Equal(t, []string{"c"}, drain(t, patient(t), q))
}

// The server's count of changes to a directory turns negative after half the entries.
func TestOfferWakesAWaiterInTheSecondHalfOfTheNumbers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := recipestest.Start(t, recipestest.WithInMemory())
		path := lasting(t, srv.Client(t), srv.Root(t)+"/q")
		producer := queue.New(srv.Client(t), path)
		require.NoError(t, srv.Embedded().SetSequence(path, 1<<30-1))
		for range 3 {
			waiting := newCrowd(t, srv, path, 1)
			offered := time.Now()
			offer(t, producer, "x")
			require.Equal(t, "x", <-waiting.got)
			require.Less(t, time.Since(offered), time.Second)
		}
	})
}

// Foreign producers may have gone over the counter's end: those entries come last.
func TestEntriesBeyondTheEndComeLast(t *testing.T) {
	t.Parallel()
	srv := recipestest.Start(t)
	c := srv.Client(t)
	path := lasting(t, c, srv.Root(t)+"/q")
	conn := suite.Session(t, c).Conn()
	for _, number := range []string{"-2147483648", "2147483647", "2147483646", "-2147483647"} {
		_, err := conn.Create(path+"/qn-"+number, []byte(number), 0, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
	}
	require.Equal(t, []string{"2147483646", "2147483647", "-2147483648", "-2147483647"}, drain(t, patient(t), queue.New(c, path)))
}

func TestDeepQueue(t *testing.T) {
	t.Parallel()
	srv, link, c := oblivious(t)
	path := lasting(t, c, srv.Root(t)+"/q")
	q := queue.New(c, path)
	depth := 20_000
	if !testing.Short() && !raceEnabled {
		depth = 100_000
	}
	for i := 0; i < depth; i += 5000 {
		_, err := q.OfferAll(t.Context(), numbered(i, 5000))
		require.NoError(t, err)
	}
	began := time.Now()
	lists := link.Count(recipestest.OpGetChildren)
	const takes = 500
	for i := range takes {
		data, err := q.Take(t.Context())
		require.NoError(t, err)
		require.Equal(t, fmt.Sprintf("%06d", i), string(data))
	}
	require.Equal(t, 2, link.Count(recipestest.OpGetChildren)-lists, "of the queue, and of its consumers")
	t.Logf("%d takes of %d: %v", takes, depth, time.Since(began))
	rest := drain(t, t.Context(), q)
	require.Len(t, rest, depth-takes)
	require.IsIncreasing(t, rest)
}
