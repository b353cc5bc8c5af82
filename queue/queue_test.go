package queue_test

import (
	"context"
	"math"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/internal/zkwire"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/queue"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

func TestFirstInFirstOut(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path := lasting(t, srv.Client(t), srv.Root(t)+"/q")
		q, other := queue.New(srv.Client(t), path), queue.New(srv.Client(t), path)
		ctx := patient(t)
		_, err := q.Poll(ctx)
		require.ErrorIs(t, err, queue.ErrEmpty)
		_, err = q.Peek(ctx)
		require.ErrorIs(t, err, queue.ErrEmpty)

		id := suite.Got(q.Offer(ctx, []byte("a")))(t)
		require.Equal(t, "qn-0000000001", id) // the records came first
		ids := suite.Got(other.OfferAll(ctx, [][]byte{[]byte("b"), nil, []byte("d")}))(t)
		require.Equal(t, []string{"qn-0000000002", "qn-0000000003", "qn-0000000004"}, ids)

		n := suite.Got(q.Len(ctx))(t)
		require.Equal(t, 4, n)
		data := suite.Got(other.Peek(ctx))(t)
		require.Equal(t, "a", string(data))
		data, err = other.Poll(ctx)
		require.NoError(t, err)
		require.Equal(t, "a", string(data))
		all := suite.Got(q.PollN(ctx, 2))(t)
		require.Equal(t, []string{"b", ""}, texts(all))
		data, err = other.Take(ctx)
		require.NoError(t, err)
		require.Equal(t, "d", string(data))
		_, err = q.PollN(ctx, 2)
		require.ErrorIs(t, err, queue.ErrEmpty)
	})
}

func TestReserve(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path := lasting(t, srv.Client(t), srv.Root(t)+"/q")
		q, other := queue.New(srv.Client(t), path), queue.New(srv.Client(t), path)
		ctx := patient(t)
		offer(t, q, "a", "b")

		a := suite.Got(q.Reserve(ctx))(t)
		require.Equal(t, "a", string(a.Data()))
		require.Equal(t, "qn-0000000001", a.ID())
		require.Equal(t, 1, a.Attempt())
		require.NoError(t, a.Err())
		b, err := other.TryReserve(ctx)
		require.NoError(t, err)
		require.Equal(t, "b", string(b.Data()))
		require.Greater(t, b.Token(), a.Token())
		_, err = other.TryReserve(ctx)
		require.ErrorIs(t, err, queue.ErrEmpty)
		_, err = q.Poll(ctx)
		require.ErrorIs(t, err, queue.ErrEmpty)
		n := suite.Got(q.Len(ctx))(t)
		require.Equal(t, 2, n)

		require.NoError(t, a.Nack(ctx))
		require.ErrorIs(t, a.Err(), protocol.ErrReleased)
		require.ErrorIs(t, a.Ack(ctx), protocol.ErrReleased)
		again, err := other.Reserve(ctx)
		require.NoError(t, err)
		require.Equal(t, "a", string(again.Data()))
		require.Equal(t, 2, again.Attempt())
		require.NoError(t, b.Ack(ctx))
		require.NoError(t, b.Ack(ctx))
		require.NoError(t, again.Ack(ctx))
		_, err = q.TryReserve(ctx)
		require.ErrorIs(t, err, queue.ErrEmpty)
		require.Equal(t, []string{"zkrecipes"}, children(t, srv.Client(t), path))
	})
}

// A consumer reads ahead for the sum of all requests.
func TestPollNOfAllBesideATake(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		stage := suite.NewStage(t, 1)
		q := queue.New(stage.Clients[0], stage.Root(t)+"/q")
		taken := make(chan []byte, 1)
		go func() {
			data, err := q.Take(t.Context())
			assert.NoError(t, err)
			taken <- data
		}()

		synctest.Wait() // it waits

		_, err := q.PollN(t.Context(), math.MaxInt)
		require.ErrorIs(t, err, queue.ErrEmpty)
		_, err = q.Offer(t.Context(), []byte("a"))
		require.NoError(t, err)
		require.Equal(t, "a", string(suite.Wait(t, taken)))
	})
}

func TestBadInput(t *testing.T) {
	t.Parallel()
	srv, link, c := oblivious(t)
	root := srv.Root(t)
	before := link.Count(recipestest.OpAny)
	good := queue.New(c, root+"/q")
	_, err := good.PollN(t.Context(), 0)
	require.Error(t, err)
	_, err = good.Offer(t.Context(), make([]byte, recipe.MaxData))
	require.ErrorIs(t, err, protocol.ErrTooLarge)
	_, err = good.OfferAll(t.Context(), [][]byte{make([]byte, recipe.MaxData/2), make([]byte, recipe.MaxData/2)})
	require.ErrorIs(t, err, protocol.ErrTooLarge)
	_, err = good.OfferAll(t.Context(), make([][]byte, recipe.MaxData/50))
	require.ErrorIs(t, err, protocol.ErrTooLarge)
	ids := suite.Got(good.OfferAll(t.Context(), nil))(t)
	require.Empty(t, ids)
	require.Equal(t, before, link.Count(recipestest.OpAny))

	_, err = good.Offer(t.Context(), make([]byte, recipe.MaxData-len(root+"/q")))
	require.NoError(t, err)
	_, err = good.OfferAll(t.Context(), make([][]byte, 5000))
	require.NoError(t, err)
	require.Len(t, drain(t, patient(t), good), 5001)
}

// Entries of the Java DistributedQueue are read, and it finds ours.
func TestForeignEntries(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		c := srv.Client(t)
		path := lasting(t, c, srv.Root(t)+"/q")
		conn := suite.Session(t, c).Conn()
		_, err := conn.Create(path+"/qn-", []byte("theirs"), zk.FlagSequence, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
		q := queue.New(c, path)
		offer(t, q, "ours")
		require.Equal(t, []string{"qn-0000000000", "qn-0000000002", "zkrecipes"}, children(t, c, path))
		require.NoError(t, conn.Delete(path+"/qn-0000000000", -1))
		_, err = conn.Set(path+"/qn-0000000002", []byte("changed"), -1)
		require.NoError(t, err)
		require.Equal(t, []string{"changed"}, drain(t, patient(t), q))
	})
}

// A queue needs rights on its own node alone. Here that node belongs to one identity, and the
// parent can only be read.
func TestQueueNeedsItsOwnNodeOnly(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		const scheme, user, password = "digest", "mail", "secret"
		acl := zk.DigestACL(zk.PermAll, user, password)
		identity := protocol.WithAuth(scheme, []byte(user+":"+password))
		operator := srv.Client(t, identity)
		root := lasting(t, operator, srv.Root(t)+"/queues")
		path := root + "/mail"
		conn := suite.Session(t, operator).Conn()
		_, err := conn.Create(path, nil, 0, acl)
		require.NoError(t, err)
		_, err = conn.SetACL(root, zk.WorldACL(zk.PermRead|zk.PermAdmin), -1)
		require.NoError(t, err)
		t.Cleanup(func() { open(conn, root) })

		newQueue := func() *queue.Queue {
			return queue.New(srv.Client(t, identity, protocol.WithACL(acl)), path)
		}

		q, other := newQueue(), newQueue()
		taken := suite.Later(func() string { data, _ := q.Take(patient(t)); return string(data) })
		offer(t, other, "a")
		require.Equal(t, "a", suite.Wait(t, taken))

		offer(t, q, "b", "c")
		require.NoError(t, reserve(t, q).Nack(t.Context()))
		require.Equal(t, 2, length(t, other))
		data := suite.Got(other.Peek(t.Context()))(t)
		require.Equal(t, "b", string(data))
		it := reserve(t, other)
		require.Equal(t, 2, it.Attempt())
		require.NoError(t, it.Ack(t.Context()))
		require.Equal(t, []string{"c"}, drain(t, t.Context(), q))
	})
}

// An answer is lost, and then the receipt can't be read. So the outcome is uncertain, even if the
// server would know.
func TestOfferWhoseReceiptCannotBeRead(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link, operator := srv.Link(t), srv.Client(t)
		path := lasting(t, operator, srv.Root(t)+"/q")
		q := queue.New(link.Client(t), path)
		offer(t, q, "a")
		receipts := children(t, operator, path+"/zkrecipes/receipts")
		require.Len(t, receipts, 1)
		link.Fail(recipestest.OpGetData, path+"/zkrecipes/receipts/"+receipts[0], int32(zkwire.CodeInvalidACL), 1)
		link.LoseReply(recipestest.OpMulti, 1)
		_, err := q.Offer(suite.Lasting(t), []byte("b"))
		var uncertain *queue.UncertainError
		require.ErrorAs(t, err, &uncertain)
		require.ErrorIs(t, err, protocol.ErrUncertain)
		require.ErrorIs(t, err, zk.ErrInvalidACL)
		require.Equal(t, []string{"b"}, texts(uncertain.Data))
		offer(t, q, "c")
		require.Equal(t, []string{"a", "b", "c"}, drain(t, t.Context(), q))
	})
}

// crowd makes eight goroutines call do so often each.
func crowd(wait *suite.Group, times int, do func() error) {
	for range 8 {
		wait.Go(func() (err error) {
			for n := 0; n < times && err == nil; n++ {
				err = do()
			}
			return err
		})
	}
}

// Eight goroutines of a session need little more time than one.
func TestGoroutinesShareRoundTrips(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(context.Context, *queue.Queue) error
		most time.Duration
	}{
		"offer": {offerX, 75 * time.Millisecond},
		"take":  {poll, 75 * time.Millisecond},
		"reserve and acknowledge": {func(ctx context.Context, q *queue.Queue) error {
			it, err := q.Reserve(ctx)
			if err != nil {
				return err
			}
			return it.Ack(ctx)
		}, 150 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				fill(t, b.queue(), 500)
				link, q := b.linked()
				link.Delay(time.Millisecond / 2)
				require.NoError(t, c.do(t.Context(), q))
				began := time.Now()
				var wait suite.Group
				crowd(&wait, 50, func() error { return c.do(t.Context(), q) })
				require.NoError(t, wait.Wait())
				require.Less(t, time.Since(began), c.most)
			})
		})
	}
}

// Sessions that have taken their shares of a queue don't read what the others have taken.
func TestRaceEndsWithFewReads(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		const sessions, each = 8, 40
		fill(t, b.queue(), sessions*8*each)
		var links []*recipestest.Link
		var wait suite.Group
		for range sessions {
			link, q := b.linked()
			link.Delay(time.Millisecond / 2)
			links = append(links, link)
			crowd(&wait, each, func() error { _, err := q.Take(t.Context()); return err })
		}
		require.NoError(t, wait.Wait())
		reads := 0
		for _, l := range links {
			reads += l.Count(recipestest.OpGetData)
		}
		require.Less(t, reads, sessions*8*each*7/4)
	})
}

// A session's first call lists two directories at once, a third one and the queue. Then it reads an
// entry while it makes a receipt, and removes the entry.
func TestFirstTakeIsFast(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		used := b.queue()
		fill(t, used, 2)
		require.NoError(t, poll(t.Context(), used))
		link := b.srv.Link(t)
		client := link.Client(t)
		suite.Session(t, client)
		link.Delay(time.Millisecond / 2)
		began := time.Now()
		require.NoError(t, poll(t.Context(), queue.New(client, b.path)))
		require.LessOrEqual(t, time.Since(began), 5*time.Millisecond)
	})
}

// Queues of one client share a consumer whatever their maximum length is, even if each of them
// serves a single call. So the order is exact, and there is one receipt.
func TestQueuesOfAClientShareAConsumer(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		fill(t, b.queue(), 20)
		client := b.srv.Client(t)
		var got [][]byte
		for i := range 20 {
			data, err := queue.New(client, b.path, []queue.Option{nil, queue.WithMaxLength(1000)}[i%2]).Take(t.Context())
			require.NoError(t, err)
			got = append(got, data)
			runtime.GC()
		}
		require.Equal(t, texts(numbered(0, 20)), texts(got))
		require.Len(t, children(t, b.client, b.path+"/zkrecipes/consumers"), 1)
	})
}
