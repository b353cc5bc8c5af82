package queue_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/queue"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

// An offer of any size is appended or refused. The connection never suffers.
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
		room := recipe.MaxData - count*rapid.IntRange(0, 700).Draw(rt, "for each")
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
		s, err := recipe.SessionOf(t.Context(), client)
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

// The chroot counts for each entry: without a chroot this many entries fit.
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
	for _, size := range []int{0, 107, 108, 109} { // one of these sizes was a panic
		items := make([][]byte, 10_860)
		items[0] = make([]byte, size)
		before := link.Count(recipestest.OpMulti)
		_, err = q.OfferAll(t.Context(), items)
		require.ErrorIs(t, err, protocol.ErrTooLarge)
		require.Equal(t, before, link.Count(recipestest.OpMulti))
	}

	room := recipe.MaxData - len("/q") - 61
	_, err = q.Offer(t.Context(), make([]byte, room+1))
	require.ErrorIs(t, err, protocol.ErrTooLarge)
	offer(t, q, string(make([]byte, room)))
	require.Len(t, drain(t, patient(t), q), 2)
}

// together calls do in n goroutines at the same time.
func together(n int, do func() error) error {
	var wait suite.Group
	for range n {
		wait.Go(do)
	}
	return wait.Wait()
}

// What goes together does not get too large for a small server whose limit the client was given. An
// offer above that limit is refused, and others go on.
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
		large := suite.Later(func() error { _, err := q.Offer(patient(t), make([]byte, 2*most)); return err })
		require.NoError(t, together(goroutines, offers))
		require.ErrorIs(t, suite.Wait(t, large), protocol.ErrTooLarge)
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

// PollN of many entries takes as many as fit into a request, and then goes on.
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
		if !suite.Has(t, srv, suite.Containers) { // without containers, the first request has ended a connection
			connections++
		}

		require.Equal(t, connections, link.Count(recipestest.OpConnect))
	})
}

// An entry that is too large to be reserved can be taken. It does not hurt the connection.
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
	got := suite.Got(q.Poll(t.Context()))(t)
	require.Len(t, got, len(data))
	require.Equal(t, 1, link.Count(recipestest.OpConnect))
}

// Entries for which a transaction has no room come first in the next one.
func TestOrderOfLargeEntries(t *testing.T) {
	const n = 40
	for name, most := range map[string]int{"Take": 1, "PollN": 10} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				link, q := b.linked()
				link.Delay(time.Millisecond)
				producer := b.queue()
				for i := range n {
					offer(t, producer, fmt.Sprintf("%06d", i)+strings.Repeat("x", 100_000))
				}
				var got []string
				for len(got) < n {
					var data [][]byte
					if most > 1 {
						data, _ = q.PollN(t.Context(), most)
					} else if one, err := q.Take(t.Context()); err == nil {
						data = [][]byte{one}
					}
					require.NotEmpty(t, data)
					for _, d := range data {
						got = append(got, string(d[:6]))
					}
				}
				require.Equal(t, texts(numbered(0, n)), got)
			})
		})
	}
}

// An entry that could not be given back (eight times, with a long reason) can't be reserved.
func TestReservationLeavesRoomForTheReturn(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		q := b.queue()
		reserved := 0
		for short := 500; short < 16<<10; short *= 2 {
			_, err := b.conn().Create(b.path+"/qn-0000000000", make([]byte, 1<<20-1-short), 0, zk.WorldACL(zk.PermAll))
			require.NoError(t, err)
			for range 8 {
				it, err := q.TryReserve(t.Context())
				if errors.Is(err, protocol.ErrTooLarge) {
					break
				}
				require.NoError(t, err)
				require.NoError(t, it.Nack(t.Context(), queue.Because(errors.New(strings.Repeat(`"`, 5000)))))
				reserved++
			}
			require.Len(t, drain(t, t.Context(), q), 1)
		}
		require.Equal(t, 8, reserved)
	})
}
