package queue_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/queue"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

// Whatever is offered, wherever: it is appended, or refused, and the connection never suffers.
func TestOffersOfAnySizeKeepTheConnection(t *testing.T) {
	t.Parallel()
	srv := recipestest.Start(t, lasts)
	rapid.Check(t, func(rt *rapid.T) {
		chroot := strings.Repeat("/c", rapid.IntRange(0, 100).Draw(rt, "chroot"))
		path := "/" + strings.Repeat("p", rapid.IntRange(1, 400).Draw(rt, "path"))
		var opts []queue.Option
		if rapid.Bool().Draw(rt, "bounded") {
			opts = append(opts, queue.WithMaxLength(1<<20))
		}
		count := rapid.SampledFrom([]int{1, 2, 10, 1000, 5000}).Draw(rt, "count")
		room := protocol.MaxData - count*rapid.IntRange(0, 700).Draw(rt, "for each")
		items := make([][]byte, count)
		for i := range items {
			items[i] = make([]byte, max(0, room/count))
		}
		items[0] = make([]byte, len(items[0])+rapid.IntRange(0, 70_000).Draw(rt, "first"))

		link := srv.Link(t)
		client, err := protocol.Connect(t.Context(), srv.ConnectString()+chroot,
			protocol.WithDialer(link.Dial), protocol.WithSessionTimeout(timeout))
		require.NoError(rt, err)
		defer client.Close()
		q := queue.New(client, path, opts...)
		s, err := client.Session(t.Context())
		require.NoError(rt, err)
		if _, err = s.EnsurePath(t.Context(), path); err == nil {
			_, err = s.Conn().Set(s.Path(path), make([]byte, rapid.IntRange(0, 100_000).Draw(rt, "of the queue's node")), -1)
		}
		require.NoError(rt, err)

		ids, err := q.OfferAll(t.Context(), items)
		if err == nil {
			require.Len(rt, ids, count)
		} else {
			require.ErrorIs(rt, err, protocol.ErrTooLarge)
		}
		require.Equal(rt, 1, link.Count(recipestest.OpConnect))
		for err == nil {
			_, err = q.PollN(t.Context(), 1000)
		}
		if !errors.Is(err, protocol.ErrTooLarge) {
			require.ErrorIs(rt, err, queue.ErrEmpty)
		}
		require.Equal(rt, 1, link.Count(recipestest.OpConnect))
	})
}

// The chroot counts, for each entry: this many fit without one.
func TestChrootCounts(t *testing.T) {
	t.Parallel()
	srv := recipestest.Start(t, lasts)
	link := srv.Link(t)
	client, err := protocol.Connect(t.Context(), srv.ConnectString()+"/"+strings.Repeat("c", 60),
		protocol.WithDialer(link.Dial), protocol.WithSessionTimeout(timeout))
	require.NoError(t, err)
	defer client.Close()
	q := queue.New(client, "/q")
	offer(t, q, "first")
	for _, size := range []int{0, 107, 108, 109} { // one of them was a panic
		items := make([][]byte, 10_860)
		items[0] = make([]byte, size)
		before := link.Count(recipestest.OpMulti)
		_, err = q.OfferAll(t.Context(), items)
		require.ErrorIs(t, err, protocol.ErrTooLarge)
		require.Equal(t, before, link.Count(recipestest.OpMulti))
	}
	room := protocol.MaxData - len("/q") - 61
	_, err = q.Offer(t.Context(), make([]byte, room+1))
	require.ErrorIs(t, err, protocol.ErrTooLarge)
	offer(t, q, string(make([]byte, room)))
	require.Len(t, drain(t, patient(t), q), 2)
}

// together has each of some goroutines do something at the same time.
func together(n int, do func() error) error {
	var wait suite.Group
	for range n {
		wait.Go(do)
	}
	return wait.Wait()
}

// What goes together does not get too large for a small server whose limit the client was given.
func TestBatchesFitASmallServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const goroutines, most = 200, 36 << 10
		srv := recipestest.Start(t, recipestest.WithConfig(embedded.Config{InMemory: true, MaxPacket: most}))
		link := srv.Link(t)
		path := lasting(t, srv.Client(t), srv.Root(t)+"/"+strings.Repeat("p", 400))
		q := queue.New(link.Client(t, protocol.WithRequestLimit(most)), path)
		link.Delay(time.Millisecond)
		reserve := func(settle func(*queue.Item) error) error {
			it, err := q.Reserve(patient(t))
			if err != nil {
				return err
			}
			return settle(it)
		}
		offers := func() error { _, err := q.Offer(patient(t), make([]byte, 1000)); return err }
		require.NoError(t, together(goroutines, offers))
		require.NoError(t, together(goroutines, func() error {
			return reserve(func(it *queue.Item) error { return it.Nack(patient(t), queue.AtTail()) })
		}))
		require.NoError(t, together(goroutines, func() error {
			return reserve(func(it *queue.Item) error { return it.Ack(patient(t)) })
		}))
		require.NoError(t, together(goroutines, offers))
		require.Len(t, drain(t, patient(t), q), goroutines)
		require.Equal(t, 1, link.Count(recipestest.OpConnect))
	})
}

// PollN of many takes what fits into a request, and goes on where it was.
func TestPollNAtALongPath(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path := lasting(t, srv.Client(t), srv.Root(t)+"/"+strings.Repeat("p", 1500))
		link := srv.Link(t)
		q := queue.New(link.Client(t, protocol.WithSessionTimeout(timeout)), path) // or what the server grants
		for i := range 4 {
			_, err := q.OfferAll(t.Context(), numbered(i*250, 250))
			require.NoError(t, err)
		}
		require.Equal(t, texts(numbered(0, 1000)), drain(t, patient(t), q))

		connections := 1
		if !suite.Has(t, srv, suite.Containers) { // the request for the first one has ended a connection
			connections++
		}
		require.Equal(t, connections, link.Count(recipestest.OpConnect))
	})
}

// An item that was made too large to be claimed can be taken, and is in no way of the connection.
func TestEntryTooLargeToBeReserved(t *testing.T) {
	t.Parallel()
	srv, link, client := oblivious(t)
	path := lasting(t, client, srv.Root(t)+"/q")
	data := make([]byte, 1<<20-250)
	_, err := suite.Session(t, client).Conn().Create(path+"/qn-0000000000", data, 0, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	q := queue.New(client, path)
	_, err = q.TryReserve(t.Context())
	require.ErrorIs(t, err, protocol.ErrTooLarge)
	got, err := q.Poll(t.Context())
	require.NoError(t, err)
	require.Len(t, got, len(data))
	require.Equal(t, 1, link.Count(recipestest.OpConnect))
}

// What is too large for the server by the limit that the client was given is refused, and others go
// on.
func TestOfferTooLargeForASmallServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := recipestest.Start(t, recipestest.WithConfig(embedded.Config{InMemory: true, MaxPacket: 64 << 10}))
		link := srv.Link(t)
		q := queue.New(link.Client(t, protocol.WithRequestLimit(64<<10)), lasting(t, srv.Client(t), srv.Root(t)+"/q"))
		offer(t, q, "before")
		before := link.Count(recipestest.OpConnect)
		large := make(chan error, 1)
		go func() {
			_, err := q.Offer(patient(t), make([]byte, 100_000))
			large <- err
		}()
		require.NoError(t, together(20, func() error {
			_, err := q.Offer(patient(t), make([]byte, 1000))
			return err
		}))
		require.ErrorIs(t, <-large, protocol.ErrTooLarge)
		require.Equal(t, before, link.Count(recipestest.OpConnect))
		require.Len(t, drain(t, patient(t), q), 21)
	})
}
