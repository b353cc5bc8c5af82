package queue_test

import (
	"context"
	"errors"
	"path"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/internal/zkwire"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/queue"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// A bench is a queue in a bubble.
type bench struct {
	*testing.T
	srv    *recipestest.Server
	client *protocol.Client // of an operator
	path   string
}

// inBubble runs a test in virtual time.
func inBubble(t *testing.T, test func(t *testing.T, b *bench)) {
	t.Helper()
	t.Parallel()
	bubble(t, test)
}

// bubble is inBubble for tests that need several, one after the other.
func bubble(t *testing.T, test func(t *testing.T, b *bench)) {
	t.Helper()
	recipestest.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		client := srv.Client(t)
		test(t, &bench{t, srv, client, lasting(t, client, srv.Root(t)+"/q")})
	})
}

func (b *bench) queue(opts ...queue.Option) *queue.Queue {
	return queue.New(b.srv.Client(b.T), b.path, opts...)
}

// linked is a queue whose network the test may break.
func (b *bench) linked(opts ...queue.Option) (*recipestest.Link, *queue.Queue) {
	link := b.srv.Link(b.T)
	return link, queue.New(link.Client(b.T), b.path, opts...)
}

func (b *bench) conn() *zk.Conn { return suite.Session(b.T, b.client).Conn() }

func (b *bench) reserve(q *queue.Queue) *queue.Item {
	b.Helper()
	it, err := q.TryReserve(b.Context())
	require.NoError(b, err)
	return it
}

// crash expires the session that has reserved an item.
func (b *bench) crash(it *queue.Item) {
	b.Helper()
	id, _, _ := recipe.ParseOwner(path.Base(path.Dir(it.Check().Path)) + "-")
	b.srv.ExpireSession(id.Session)
}

// The items of a dead consumer come back before others get younger entries, whether these others
// come later or are at work. So does an item that an operator frees.
func TestDeadConsumersItemsKeepTheirOrder(t *testing.T) {
	poll := func(t *testing.T, q *queue.Queue) string { data, _ := q.Poll(t.Context()); return string(data) }
	inBubble(t, func(t *testing.T, b *bench) {
		dying, next := b.queue(), b.queue()
		offer(t, dying, "a", "b", "c")
		b.crash(b.reserve(dying))
		require.Equal(t, []string{"a", "b"}, []string{poll(t, next), poll(t, next)})
	})

	bubble(t, func(t *testing.T, b *bench) {
		dying, busy := b.queue(), b.queue()
		offer(t, dying, "a", "b", "c")
		it := b.reserve(dying)
		require.Equal(t, "b", poll(t, busy))
		b.crash(it)
		time.Sleep(250 * time.Millisecond)
		require.Equal(t, "a", poll(t, busy))
	})

	// In one session that is exact.
	bubble(t, func(t *testing.T, b *bench) {
		q := b.queue()
		offer(t, q, "a", "b", "c")
		it := b.reserve(q)
		require.Equal(t, "b", poll(t, q))
		require.NoError(t, q.Free(t.Context(), it.ID()))
		require.Equal(t, "a", poll(t, q))
	})
}

// A reserved entry is no child of the queue. It comes back as it was, with its ID.
func TestReservationIsAMove(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		q := b.queue()
		offer(t, q, "a", "b")
		first := list(t, q)
		time.Sleep(time.Second)
		it := b.reserve(q)
		require.Equal(t, []string{first[1].ID}, entries(t, b.client, b.path))
		listed := list(t, q)
		require.Equal(t, first[0].ID, listed[0].ID)
		require.Equal(t, 1, listed[0].Attempts)
		require.Equal(t, 1, listed[0].Size)
		require.NotZero(t, listed[0].Holder)
		n := suite.Got(q.Len(t.Context()))(t)
		require.Equal(t, 2, n)

		require.NoError(t, it.Nack(t.Context(), queue.Because(errors.New("no luck"))))
		data, stat, err := b.conn().Get(b.path + "/" + first[0].ID)
		require.NoError(t, err)
		require.Equal(t, "a", string(data))
		_, beside, err := b.conn().Get(b.path + "/zkrecipes/returned/" + first[0].ID)
		require.NoError(t, err)
		require.Equal(t, stat.Czxid, beside.Czxid)
		listed = list(t, q)
		require.Equal(t, "no luck", listed[0].Reason)
		require.Equal(t, first[0].Since, listed[0].Since)

		again := b.reserve(q)
		require.Equal(t, first[0].ID, again.ID())
		require.Equal(t, 2, again.Attempt())
		require.Equal(t, "no luck", again.Reason())
		require.Equal(t, first[0].Since, again.Since())
		require.Greater(t, again.Token(), it.Token())
		require.NoError(t, again.Ack(t.Context()))
		require.Equal(t, []string{"b"}, drain(t, t.Context(), q))
		require.Empty(t, children(t, b.client, b.path+"/zkrecipes/returned"))
	})
}

// A foreign consumer takes an entry that has come back and leaves its record. An entry of the same
// name does not get that record.
func TestRecordOfAnotherEntryDoesNotCount(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		q := b.queue()
		offer(t, q, "a")
		it := b.reserve(q)
		require.NoError(t, it.Nack(t.Context()))
		require.NoError(t, b.conn().Delete(b.path+"/"+it.ID(), -1))
		_, err := b.conn().Create(b.path+"/"+it.ID(), []byte("other"), 0, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
		_, err = b.conn().Set(b.path+"/"+it.ID(), []byte("another"), -1)
		require.NoError(t, err)
		for attempt := 1; attempt <= 3; attempt++ {
			it = b.reserve(q)
			require.Equal(t, "another", string(it.Data()))
			require.Equal(t, attempt, it.Attempt())
			require.NoError(t, it.Nack(t.Context()))
		}

		require.Equal(t, []string{"another"}, drain(t, t.Context(), q))
		require.Empty(t, children(t, b.client, b.path+"/zkrecipes/returned"))
	})
}

// The items of a dead consumer come back to their places, and the attempt counts.
func TestDeadConsumersItemComesBack(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		q, dying := b.queue(), b.queue()
		offer(t, q, "a", "b")
		it := b.reserve(dying)
		waits := suite.Later(func() string { q.Take(t.Context()); data, _ := q.Take(t.Context()); return string(data) })
		time.Sleep(time.Second)
		b.crash(it)
		require.Equal(t, "a", suite.Wait(t, waits))
		suite.Wait(t, it.Done())
		require.ErrorIs(t, it.Err(), protocol.ErrLost)
		require.ErrorIs(t, it.Ack(t.Context()), protocol.ErrLost)
	})
}

func TestDeadConsumersAttemptCounts(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		dead := queue.New(b.client, b.path+"-dead")
		q := b.queue(queue.WithDeadLetter(dead, 2))
		offer(t, q, "a")
		for attempt := 1; attempt <= 2; attempt++ {
			dying := b.queue()
			it := b.reserve(dying)
			require.Equal(t, attempt, it.Attempt())
			b.crash(it)
			time.Sleep(time.Second)
		}

		require.ErrorIs(t, suite.Err(q.TryReserve(t.Context())), queue.ErrEmpty)
		letters := list(t, dead)
		require.Len(t, letters, 1)
		require.Contains(t, letters[0].Reason, "not acknowledged")
		require.Contains(t, letters[0].Origin, b.path+"/qn-0000000001 after 2 attempts")
	})
}

// A delayed entry keeps its ID. Nobody sees it before it is due, and it costs nobody a listing.
func TestDelayedEntry(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		q := b.queue()
		id := suite.Got(q.OfferAfter(t.Context(), time.Hour, []byte("later")))(t)
		began := time.Now()
		offer(t, q, "now")
		require.Len(t, entries(t, b.client, b.path), 1)
		require.Equal(t, []string{"now"}, drain(t, t.Context(), q))
		listed := list(t, q)
		require.Equal(t, id, listed[0].ID)
		require.Equal(t, 5, listed[0].Size)
		require.WithinDuration(t, began.Add(time.Hour), listed[0].Due, time.Second)

		waiting := b.queue()
		it, err := waiting.Reserve(t.Context())
		require.NoError(t, err)
		require.GreaterOrEqual(t, time.Since(began), time.Hour)
		require.Less(t, time.Since(began), time.Hour+100*time.Millisecond)
		require.Equal(t, id, it.ID())
		require.WithinDuration(t, began, it.Since(), time.Second)
		require.NoError(t, it.Nack(t.Context(), queue.After(time.Minute)))
		require.ErrorIs(t, poll(t.Context(), q), queue.ErrEmpty)
		time.Sleep(time.Minute + time.Millisecond)
		it = b.reserve(q)
		require.Equal(t, id, it.ID())
		require.Equal(t, 2, it.Attempt())
		require.NoError(t, it.Ack(t.Context()))
		require.NoError(t, q.Drained(t.Context()))
		id, err = q.OfferAfter(t.Context(), time.Hour, nil)
		require.NoError(t, err)
		require.NoError(t, q.Remove(t.Context(), id))
		require.NoError(t, q.Drained(t.Context()))
	})
}

// AtTail moves an entry and After brings it back to its place. It keeps its ID.
func TestNackMovesAnItem(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		q := b.queue()
		offer(t, q, "a", "b", "c")
		it := b.reserve(q)
		id := it.ID()
		require.NoError(t, it.Nack(t.Context(), queue.AtTail()))
		delayed := b.reserve(q)
		require.NoError(t, delayed.Nack(t.Context(), queue.After(time.Second)))
		c := b.reserve(q)
		require.Equal(t, "c", string(c.Data()))
		it = b.reserve(q)
		require.Equal(t, id, it.ID())
		require.Equal(t, 2, it.Attempt())
		require.NoError(t, it.Nack(t.Context(), queue.AtTail()))
		time.Sleep(2 * time.Second)
		second := b.reserve(q)
		require.Equal(t, "b", string(second.Data()))
		require.NoError(t, second.Ack(t.Context()))
		require.NoError(t, c.Ack(t.Context()))
		require.NoError(t, q.Remove(t.Context(), id))
		require.ErrorIs(t, q.Remove(t.Context(), id), zk.ErrNoNode)
	})
}

// A dead letter says where it comes from and why. It can be brought back.
func TestRedrive(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		dead := queue.New(b.client, b.path+"-dead")
		q := b.queue(queue.WithDeadLetter(dead, 1), queue.WithRetryDelay(func(int) time.Duration { return 0 }))
		offer(t, q, "a", "b", "c")
		offer(t, dead, "stays")
		ids := entries(t, b.client, b.path)
		reason := "post https://user@host:\n\tno route\x00" + strings.Repeat("x", 10_000)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		n := 0
		err := q.Consume(ctx, 1, func(context.Context, *queue.Item) error {
			if n++; n == 3 {
				go func() { time.Sleep(time.Second); stop() }()
			}
			return errors.New(reason)
		})
		require.NoError(t, err)

		letters := list(t, dead)
		require.Len(t, letters, 4)
		require.Len(t, letters[1].Reason, 4096)
		require.True(t, strings.HasPrefix(letters[1].Reason, "post https://user@host:\n\tno route xxx"))
		require.Contains(t, letters[1].Origin, b.path+"/"+ids[0]+" after 1 attempts: post")
		require.Less(t, len(letters[1].ID), 60)

		moved := suite.Got(q.Redrive(t.Context(), dead, 2))(t)
		require.Equal(t, 2, moved)
		back := list(t, q)
		require.Equal(t, ids[:2], []string{back[0].ID, back[1].ID})
		require.Equal(t, letters[1].Reason, back[0].Reason)
		it := b.reserve(q)
		require.Equal(t, 1, it.Attempt())
		require.Equal(t, "a", string(it.Data()))
		require.NoError(t, it.Ack(t.Context()))
		moved, err = q.Redrive(t.Context(), dead, 10)
		require.NoError(t, err)
		require.Equal(t, 1, moved)
		require.Equal(t, []string{"b", "c"}, drain(t, t.Context(), q))
		require.Equal(t, []string{"stays"}, drain(t, t.Context(), dead))
		_, err = q.Redrive(t.Context(), dead, 0)
		require.ErrorContains(t, err, "at least 1")
		moved, err = q.Redrive(t.Context(), q, 1)
		require.ErrorContains(t, err, "own")
		require.Zero(t, moved)
	})
}

// Redrive says how many letters it has moved, even if it could not go on.
func TestRedriveThatFailsHalfway(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		dead := queue.New(b.client, b.path+"-dead")
		link, q := b.linked(queue.WithDeadLetter(dead, 1))
		offer(t, q, "a", "b", "c")
		for range 3 {
			require.NoError(t, b.reserve(q).Nack(t.Context()))
		}

		letters := entries(t, b.client, b.path+"-dead")
		link.Fail(recipestest.OpMulti, b.path+"-dead/"+letters[1], int32(zkwire.CodeNoAuth), 1)
		moved, err := q.Redrive(t.Context(), dead, 3)
		require.ErrorIs(t, err, zk.ErrNoAuth)
		require.Equal(t, 1, moved)
		moved, err = q.Redrive(t.Context(), dead, 3)
		require.NoError(t, err)
		require.Equal(t, 2, moved)
		require.Equal(t, []string{"a", "b", "c"}, drain(t, t.Context(), q))
	})
}

// An orderly shutdown is no failed attempt: unfinished items go back to their places.
func TestShutdownIsNoAttempt(t *testing.T) {
	for name, grace := range map[string]time.Duration{"at once": 0, "with grace": time.Second} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				dead := queue.New(b.client, b.path+"-dead")
				q := b.queue(queue.WithDeadLetter(dead, 3))
				offer(t, q, "long", "next")
				for range 4 {
					ctx, stop := context.WithCancel(t.Context())
					defer stop()
					var stopped time.Time
					err := q.Consume(ctx, 1, func(ctx context.Context, it *queue.Item) error {
						require.Equal(t, 1, it.Attempt())
						require.Equal(t, "long", string(it.Data()))
						stopped = time.Now()
						stop()
						<-ctx.Done()
						require.Equal(t, grace, time.Since(stopped))
						return context.Cause(ctx)
					}, queue.WithGrace(grace))
					require.NoError(t, err)
				}
				require.Empty(t, list(t, dead))
				require.Equal(t, []string{"long", "next"}, drain(t, t.Context(), q))
			})
		})
	}
}

// If a function returns within the grace, its result counts.
func TestFunctionThatEndsWithinTheGrace(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		q := b.queue(queue.WithRetryDelay(func(int) time.Duration { return time.Second }))
		offer(t, q, "a", "b")
		ctx, stop := context.WithCancel(t.Context())
		err := q.Consume(ctx, 2, func(ctx context.Context, it *queue.Item) error {
			time.Sleep(time.Second)
			stop()
			time.Sleep(time.Second)
			if string(it.Data()) == "b" {
				return errors.New("fails")
			}
			return ctx.Err()
		}, queue.WithGrace(time.Minute))
		require.NoError(t, err)
		left := list(t, q)
		require.Len(t, left, 1)
		require.Equal(t, "fails", left[0].Reason)
		require.Equal(t, 1, left[0].Attempts)
		require.ErrorContains(t, q.Consume(t.Context(), 1, func(context.Context, *queue.Item) error { return nil }, queue.WithGrace(-1)), "negative")
		require.NoError(t, q.Remove(t.Context(), left[0].ID))
	})
}

// A panic is a failed attempt, with its stack. The worker goes on unless an option says otherwise.
// If the function ends its goroutine, that of Consume ends as well.
func TestPanicIsAFailedAttempt(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		client, log := logged(b.srv.Client(t))
		q := queue.New(client, b.path, queue.WithRetryDelay(func(int) time.Duration { return time.Hour }))
		offer(t, q, "bad", "good")
		ctx, stop := context.WithCancel(t.Context())
		work := func(_ context.Context, it *queue.Item) error {
			if string(it.Data()) == "bad" {
				panic("oops")
			}

			stop()
			return nil
		}

		require.NoError(t, q.Consume(ctx, 1, work))
		left := list(t, q)
		require.Len(t, left, 1)
		require.Contains(t, left[0].Reason, "panic: oops")
		require.Contains(t, left[0].Reason, "TestPanicIsAFailedAttempt")
		require.Contains(t, log(), "item has failed, and is tried again")

		time.Sleep(time.Hour)
		var p *queue.PanicError
		func() {
			defer func() { p, _ = recover().(*queue.PanicError) }()
			q.Consume(t.Context(), 1, work, queue.WithPanics())
		}()

		require.NotNil(t, p)
		require.Equal(t, "oops", p.Value)

		time.Sleep(time.Hour)
		ended, returned := make(chan struct{}), false
		go func() {
			defer close(ended)
			q.Consume(t.Context(), 1, func(context.Context, *queue.Item) error { runtime.Goexit(); return nil })
			returned = true
		}()
		suite.Wait(t, ended)
		require.False(t, returned)
		require.NoError(t, q.Remove(t.Context(), left[0].ID))
	})
}

// If a write is refused, the item is not removed and the error names the write.
func TestRefusedWriteOfAnAck(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		q := b.queue()
		offer(t, q, "a", "b")
		write := &zk.SetDataRequest{Path: b.path, Data: []byte("x"), Version: 77}
		err := b.reserve(q).Ack(t.Context(), &zk.CheckVersionRequest{Path: b.path, Version: -1}, write)
		require.ErrorIs(t, err, zk.ErrBadVersion)
		require.ErrorContains(t, err, "operation 2 of 2")
		it := b.reserve(q)
		require.Equal(t, "a", string(it.Data()))
		require.Equal(t, 2, it.Attempt())
		require.ErrorContains(t, it.Ack(t.Context(), "no operation"), "operation 1 of 1")
		require.ErrorIs(t, it.Ack(t.Context(), &zk.DeleteRequest{Path: "relative"}), zk.ErrInvalidPath)
		require.ErrorIs(t, it.Ack(t.Context(), (*zk.DeleteRequest)(nil)), zk.ErrBadArguments)
		require.NoError(t, it.Err())
		err = it.Ack(t.Context(), &zk.DeleteRequest{Path: b.path + "/missing", Version: -1})
		require.ErrorIs(t, err, zk.ErrNoNode)
		require.ErrorContains(t, err, "operation 1 of 1")
		require.NotErrorIs(t, err, protocol.ErrLost)
		require.Equal(t, []string{"a", "b"}, drain(t, t.Context(), q))
	})
}

// Multi writes once while the item is held, and never afterwards. So does a transaction with its
// Check.
func TestFencedWrite(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		link, q := b.linked()
		offer(t, q, "a")
		it := b.reserve(q)
		create := func(name string) error {
			_, err := it.Multi(t.Context(), &zk.CreateRequest{Path: b.path + "/" + name})
			return err
		}

		write := func(name string) error {
			_, err := b.conn().Multi(it.Check(), &zk.CreateRequest{Path: b.path + "/" + name, Acl: zk.WorldACL(zk.PermAll)})
			return err
		}

		require.NoError(t, create("first"))
		require.NoError(t, write("checked"))
		link.LoseReply(recipestest.OpMulti, 1)
		require.NoError(t, create("second"))
		require.ErrorIs(t, create("second"), zk.ErrNodeExists)
		require.NoError(t, q.Free(t.Context(), it.ID()))
		require.ErrorIs(t, create("third"), protocol.ErrLost)
		require.ErrorIs(t, write("third"), zk.ErrNoNode)
		require.Equal(t, []string{"checked", "first", it.ID(), "second"}, entries(t, b.client, b.path))
		it = b.reserve(q)
		require.NoError(t, it.Ack(t.Context()))
		require.ErrorIs(t, create("third"), protocol.ErrReleased)
	})
}

// Under an exceeded quota, entries are taken by plain deletions and can't be reserved.
func TestTakenUnderAnExceededQuota(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		const quota = -125
		link, q := b.linked()
		other := queue.New(link.Client(b.T), b.path)
		offer(t, q, "a", "b", "c", "d", "e")
		it := b.reserve(q)
		exceeded := func(part int) { link.FailPart(part, quota) } // the first write other than a deletion
		exceeded(2)
		_, err := q.TryReserve(t.Context())
		require.ErrorIs(t, err, protocol.ErrQuotaExceeded)
		exceeded(2)
		data := suite.Got(q.Poll(t.Context()))(t)
		require.Equal(t, "b", string(data))
		exceeded(3)
		all := suite.Got(q.PollN(t.Context(), 2))(t)
		require.Equal(t, []string{"c", "d"}, texts(all))
		link.Fail(recipestest.OpCreate, "", quota, 1)
		time.Sleep(2 * time.Second) // a receipt can't be made
		data, err = other.Take(t.Context())
		require.NoError(t, err)
		require.Equal(t, "e", string(data))
		require.ErrorIs(t, poll(t.Context(), q), queue.ErrEmpty)
		exceeded(2)
		require.NoError(t, it.Ack(t.Context()))
		require.Zero(t, len(list(t, q)))
	})
}

// If an operator deletes the node of a consumer, its items come back. Its next reservation is under
// another node.
func TestReservationNeedsItsConsumersNode(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		q, other := b.queue(), b.queue()
		offer(t, q, "a", "b")
		first := b.reserve(q)
		owner := path.Base(path.Dir(first.Check().Path))
		require.NoError(t, b.conn().Delete(b.path+"/zkrecipes/consumers/"+owner, -1))
		second := b.reserve(q)
		require.Equal(t, "b", string(second.Data()))
		again := b.reserve(other)
		require.Equal(t, first.ID(), again.ID())
		require.ErrorIs(t, suite.Err(other.TryReserve(t.Context())), queue.ErrEmpty)
		require.NoError(t, second.Ack(t.Context()))
		require.ErrorIs(t, first.Ack(t.Context()), protocol.ErrLost)
		require.NoError(t, again.Ack(t.Context()))
	})
}

// An operator writes the record of a reserved entry. Its item can be settled all the same.
func TestRecordIsWrittenByHand(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		q := b.queue()
		offer(t, q, "a")
		for _, settle := range []func(*queue.Item) error{
			func(it *queue.Item) error { return it.Nack(t.Context()) },
			func(it *queue.Item) error { return it.Ack(t.Context()) },
		} {
			it := b.reserve(q)
			_, err := b.conn().Set(it.Check().Path, []byte("by hand"), -1)
			require.NoError(t, err)
			require.NoError(t, settle(it))
		}
		require.NoError(t, q.Drained(t.Context()))
	})
}

// Whatever records an operator deletes, calls go on. A reserved entry goes with its record.
func TestRecordsAreDeletedByHand(t *testing.T) {
	for _, below := range []string{"/zkrecipes/consumers", "/zkrecipes/held", "/zkrecipes/returned", "/zkrecipes/receipts", "/zkrecipes"} {
		t.Run(path.Base(below), func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				q := b.queue()
				offer(t, q, "a", "b", "c")
				require.NoError(t, b.reserve(q).Nack(t.Context()))
				it := b.reserve(q)
				deleteAll(b.conn(), b.path+below)
				time.Sleep(time.Second)
				if below == "/zkrecipes/held" || below == "/zkrecipes" {
					suite.Wait(t, it.Done())
					require.ErrorIs(t, it.Err(), protocol.ErrLost)
				}
				offer(t, q, "d")
				other := b.reserve(b.queue())
				require.NotEmpty(t, other.Data())
				require.NoError(t, other.Ack(t.Context()))
				it.Ack(t.Context())
				left := drain(t, t.Context(), b.queue())
				require.Equal(t, "d", left[len(left)-1])
				time.Sleep(2 * time.Second) // receipts go when they are idle
			})
		})
	}
}

func deleteAll(c *zk.Conn, node string) {
	children, _, _ := c.Children(node)
	for _, child := range children {
		deleteAll(c, node+"/"+child)
	}
	c.Delete(node, -1)
}

// Racing consumers get equal shares, and so does a consumer that is far away.
func TestSharesOfConsumersThatRace(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		const n = 4
		each := suite.Size(500, 150)
		q := b.queue()
		fill(t, q, 10*n*each)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		shares := make([]int, n)
		var wait suite.Group
		for i := range n {
			link, q := b.linked()
			link.Delay(time.Millisecond)
			wait.Go(func() error {
				for {
					if _, err := q.Take(ctx); err != nil {
						return nil
					}
					if shares[i]++; shares[i] == each {
						stop()
					}
				}
			})
		}

		require.NoError(t, wait.Wait())
		for _, s := range shares {
			require.Greater(t, s, each/2, shares)
		}

		drain(t, t.Context(), q)
	})
}

// A record has lost its entry. Another client sweeps it and moves the entry just before we do.
func TestRecordOfAnotherClientIsNotSwept(t *testing.T) {
	t.Parallel()
	for step, over := 1, false; !over; step++ {
		bubble(t, func(t *testing.T, b *bench) {
			dying := b.srv.Client(t)
			q := queue.New(dying, b.path)
			offer(t, q, "x")
			require.NoError(t, b.reserve(q).Nack(t.Context()))
			it := b.reserve(q)
			lasting(t, b.client, b.path+"/zkrecipes/returned/"+it.ID())
			b.srv.ExpireSession(suite.Session(t, dying).ID())
			dying.Close()

			link, slow := b.linked()
			other := b.queue()
			stop := link.At(step, func() {
				if it, err := other.TryReserve(t.Context()); err == nil {
					require.NoError(t, it.Nack(t.Context()))
				}
			})

			it, err := slow.TryReserve(t.Context())
			require.NoError(t, err)
			over = stop()
			require.GreaterOrEqual(t, it.Attempt(), 3, "step %d", step)
			require.NoError(t, it.Ack(t.Context()))
		})

		over = over || t.Failed()
	}
}

// An entry is taken by a plain deletion whose answer is lost. So another consumer can have it.
func TestPlainDeletionOfUnknownOutcome(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		link, q := b.linked()
		offer(t, q, "x")
		link.FailPart(2, -125)
		deletions := 0
		when(link, func(operations []string) bool {
			if first("delete")(operations) {
				deletions++
			}
			return deletions == 2
		}, func() { link.LoseReply(recipestest.OpMulti, 1) })
		data, err := q.Poll(t.Context())
		require.ErrorAs(t, err, new(*queue.UncertainError))
		require.Equal(t, "x", string(data))
		require.Empty(t, list(t, q))
	})
}

// A consumer comes while another one looks for the entries of dead consumers. It keeps its item.
func TestConsumerComesDuringALookForTheDead(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		link, q := b.linked()
		other := b.queue()
		offer(t, other, "x")
		require.NoError(t, b.reserve(other).Nack(t.Context()))
		time.Sleep(2 * time.Second) // nobody is there any more
		var it *queue.Item
		when(link, func(operations []string) bool { return strings.HasSuffix(operations[0], "/held") },
			func() { it = b.reserve(other) })
		require.ErrorIs(t, poll(t.Context(), q), queue.ErrEmpty)
		require.NoError(t, it.Ack(t.Context()))
	})
}

// A node without a record among the claims of a dead consumer is no entry.
func TestForeignNodeAmongClaimsStays(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		node := lasting(t, b.client, b.path+"/zkrecipes/held/nobody/1,qn-0000000009")
		require.ErrorIs(t, poll(t.Context(), b.queue()), queue.ErrEmpty)
		_, _, err := b.conn().Get(node)
		require.NoError(t, err)
	})
}

// Another library takes entries that have come back. Their records go too, but no record of an
// entry that is there (even if this consumer doesn't see it).
func TestRecordsOfEntriesThatAreTakenElsewhereAreSwept(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		q, other := b.queue(), b.queue(queue.WithPriorities())
		offer(t, other, "stays")
		require.NoError(t, b.reserve(other).Nack(t.Context()))
		for range 3 {
			offer(t, q, "x")
			it := b.reserve(q)
			require.NoError(t, it.Nack(t.Context()))
			require.NoError(t, b.conn().Delete(b.path+"/"+it.ID(), -1))
		}
		require.ErrorIs(t, poll(t.Context(), q), queue.ErrEmpty)
		time.Sleep(time.Second)
		require.Len(t, children(t, b.client, b.path+"/zkrecipes/returned"), 1)
		it := b.reserve(other)
		require.Equal(t, 2, it.Attempt())
		require.NoError(t, it.Ack(t.Context()))
	})
}

// Delayed entries come in the order in which they are due, whether a consumer works meanwhile or
// comes later. They come even if the queue has no numbers left for offers.
func TestOrderOfDelayedEntries(t *testing.T) {
	for _, late := range []bool{false, true} {
		bubble(t, func(t *testing.T, b *bench) {
			link, q := b.linked()
			link.Delay(time.Millisecond)
			producer, n := b.queue(), 100
			offer(t, producer, "first")
			require.Equal(t, []string{"first"}, drain(t, t.Context(), q))
			got := suite.Later(func() (got []string) {
				for range n {
					if late {
						time.Sleep(10 * time.Second)
						late = false
					}
					data, _ := q.Take(t.Context())
					got = append(got, string(data))
				}
				return got
			})
			for _, data := range numbered(0, n) {
				_, err := producer.OfferAfter(t.Context(), time.Second, data)
				require.NoError(t, err)
				time.Sleep(10 * time.Millisecond)
			}
			require.NoError(t, b.srv.Embedded().SetSequence(b.path, 1<<31-1<<20+1))
			require.Equal(t, texts(numbered(0, n)), suite.Wait(t, got))
			require.ErrorIs(t, offerX(t.Context(), b.queue()), protocol.ErrSequenceExhausted)
		})
	}
}

// Many delayed entries are due at once. Sessions that find that others put them back don't try each
// of them.
func TestSessionsThatPutBackTheSameEntries(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		producer, due := b.queue(), time.Now().Add(time.Minute)
		for range 500 {
			_, err := producer.OfferAfter(t.Context(), time.Until(due), nil)
			require.NoError(t, err)
		}
		time.Sleep(time.Minute)
		var polling suite.Group
		for range 3 {
			link, q := b.linked()
			link.Delay(5 * time.Millisecond)
			polling.Go(func() error {
				_, err := q.PollN(suite.Within(t, 3*time.Second), 1)
				return err
			})
		}
		require.NoError(t, polling.Wait())
	})
}

// Foreign nodes and records in the way stop nobody. An entry whose record names no place gets one.
func TestForeignNodesInTheWay(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		create(t, b.client, lasting(t, b.client, b.path+"/zkrecipes/held/dead")+"/1,x", "{\"node\":\"item-/x-0000000001\"}\n", zk.PermAll)
		require.Equal(t, []string{""}, drain(t, t.Context(), b.queue()))
		q := b.queue()
		lasting(t, b.client, b.path+"/item-.-0000000001")
		lasting(t, b.client, b.path+"/item-..-0000000001")
		offer(t, q, "a", "b")
		it := b.reserve(q)
		record := lasting(t, b.client, b.path+"/zkrecipes/returned/"+it.ID())
		_, err := b.conn().Set(record, []byte("x"), -1)
		require.NoError(t, err)
		require.NoError(t, it.Nack(t.Context()))
		it = b.reserve(q)
		require.NoError(t, it.Nack(t.Context(), queue.AtTail()))
		create(t, b.client, record+"/child", "", zk.PermAll)
		data := suite.Got(q.Poll(t.Context()))(t)
		require.Equal(t, "b", string(data))
		_, err = q.TryReserve(t.Context())
		require.ErrorIs(t, err, zk.ErrNotEmpty)
		require.ErrorIs(t, poll(t.Context(), q), zk.ErrNotEmpty)
		require.NoError(t, b.conn().Delete(record+"/child", -1))
		require.Equal(t, []string{"a"}, drain(t, t.Context(), q))
	})
}

// Under a full quota a request is lost, and an operator ends the claim before the client can look.
// Nothing is said to be done that was not.
func TestLostRequestUnderAnExceededQuota(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		link, q := b.linked()
		offer(t, q, "a")
		it := b.reserve(q)
		link.FailPart(3, -125)
		deletions := 0
		when(link, func(operations []string) bool {
			if first("delete")(operations) {
				deletions++
			}
			return deletions == 2
		}, func() {
			link.Cut()
			defer link.Heal()
			require.NoError(t, queue.New(b.client, b.path).Remove(t.Context(), it.ID()))
		})
		err := it.Ack(t.Context(), &zk.SetDataRequest{Path: b.path, Data: []byte("done"), Version: -1})
		require.ErrorIs(t, err, protocol.ErrUncertain)
	})
}

// The records of entries that another library took are swept by any session, in the end.
func TestSweepIsRepeated(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		for _, gone := range []bool{false, true} {
			c := b.srv.Client(t)
			q := queue.New(c, b.path)
			offer(t, q, "a")
			it := b.reserve(q)
			require.NoError(t, it.Nack(t.Context()))
			require.NoError(t, b.conn().Delete(b.path+"/"+it.ID(), -1))
			link, other := b.linked()
			if gone {
				c.Close()
				q = other
			}
			link.Fail(recipestest.OpGetChildren, b.path+"/zkrecipes/returned", -102, 1)
			for range 3 {
				require.ErrorIs(t, poll(t.Context(), q), queue.ErrEmpty)
				time.Sleep(time.Minute)
			}
			require.Empty(t, children(t, b.client, b.path+"/zkrecipes/returned"))
		}
	})
}

// An item that goes elsewhere costs no listing.
func TestListingsOfAConsumerThatGivesBack(t *testing.T) {
	for _, option := range []queue.NackOption{queue.AtTail(), queue.After(time.Second)} {
		bubble(t, func(t *testing.T, b *bench) {
			link, q := b.linked()
			fill(t, b.queue(), 100)
			for range 100 {
				require.NoError(t, b.reserve(q).Nack(t.Context(), option))
			}
			require.Less(t, link.Count(recipestest.OpGetChildren), 20)
			time.Sleep(2 * time.Second)
			require.Len(t, drain(t, t.Context(), q), 100)
		})
	}
}
