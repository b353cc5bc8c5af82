package queue_test

import (
	"context"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/internal/zkwire"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/queue"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// unreadable makes the server refuse the next n requests of a kind.
func unreadable(link *recipestest.Link, op recipestest.Op, n int) {
	link.Fail(op, "", int32(zkwire.CodeNoAuth), n)
}

// comesBack waits until the only entry is delivered while the session that had reserved it lives.
func comesBack(t *testing.T, b *bench, attempt int) {
	t.Helper()
	time.Sleep(time.Second)
	it, err := b.queue().TryReserve(t.Context())
	require.NoError(t, err, b.srv.Dump(b.path))
	require.Equal(t, attempt, it.Attempt())
	require.NoError(t, it.Ack(t.Context()))
}

// The answer to a reservation is lost, and its outcome can't be found out.
func TestReservationOfUnknownOutcome(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		link, q := b.linked()
		offer(t, b.queue(), "x", "y", "z")
		link.LoseReply(recipestest.OpMulti, 1)
		when(link, func(operations []string) bool { return len(operations) > 1 },
			func() { link.Fail(recipestest.OpExists, "", int32(zkwire.CodeInvalidACL), 1) })
		it := b.reserve(q)
		require.Equal(t, "x", string(it.Data()))
		require.NoError(t, it.Nack(t.Context()))
		comesBack(t, b, 2)
	})
}

// However claims have ended, the consumer knows that it still has one, and keeps its directory.
// Then it asks nothing more.
func TestDirectoryOfTheLastItem(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		link, q := b.linked()
		offer(t, b.queue(), "x", "y", "z")
		link.LoseReply(recipestest.OpMulti, 1)
		when(link, func(operations []string) bool { return len(operations) > 1 },
			func() { link.Fail(recipestest.OpExists, "", int32(zkwire.CodeInvalidACL), 1) })
		it, lost := b.reserve(q), b.reserve(q)
		link.Delay(time.Millisecond) // the acknowledgement comes before the loss is known
		require.NoError(t, b.conn().Delete(lost.Check().Path, -1))
		require.ErrorIs(t, lost.Ack(t.Context()), protocol.ErrLost)
		var left atomic.Bool
		when(link, first("delete "+path.Dir(it.Check().Path)), func() { left.Store(true) })
		time.Sleep(30 * time.Second)
		require.False(t, left.Load())
		require.NoError(t, it.Ack(t.Context()))
		time.Sleep(2 * time.Second)
		require.True(t, left.Load())
		before := link.Count(recipestest.OpAny)
		time.Sleep(10 * time.Second)
		require.Equal(t, before, link.Count(recipestest.OpAny))
	})
}

// The answer to the creation of a consumer's (or a producer's) receipt is lost, and its
// outcome can't be found out. That leaves no doubt about entries.
func TestPresenceOfUnknownOutcome(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		link, q := b.linked()
		for node, call := range map[string]func() error{
			"consumers": func() error { _, err := q.Take(t.Context()); return err },
			"receipts":  func() error { _, err := q.Offer(t.Context(), nil); return err },
		} {
			offer(t, b.queue(), "x")
			require.NoError(t, b.reserve(q).Nack(t.Context()))
			offer(t, q, "y")
			time.Sleep(2 * time.Second) // these receipts have gone
			when(link, first("answer to create"), func() {
				link.Cut()
				unreadable(link, recipestest.OpCreate, 1)
				link.Heal()
			})

			err := call()
			require.ErrorContains(t, err, "no permission to create")
			require.NotErrorIs(t, err, protocol.ErrUncertain)
			time.Sleep(time.Minute)
			require.Empty(t, children(t, b.client, b.path+"/zkrecipes/"+node))
			require.Equal(t, []string{"x", "y"}, drain(t, t.Context(), b.queue()))
		}
	})
}

// An item is given back, and whether its claim is gone can't be found out (once or several times).
func TestReturnOfUnknownOutcome(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 3; n++ {
		bubble(t, func(t *testing.T, b *bench) {
			link, q := b.linked()
			offer(t, b.queue(), "x")
			it := b.reserve(q)
			unreadable(link, recipestest.OpExists, n)
			left := n
			var meet func([]string)
			meet = func(operations []string) {
				if len(operations) > 1 && left > 0 {
					left--
					link.Cut()
					link.Heal()
				}
				link.Meet(1, meet)
			}

			link.Meet(1, meet)
			require.NoError(t, it.Nack(t.Context()))
			comesBack(t, b, 2)
		})
	}
}

// If a claim can't be seen, its item is lost but its entry is not.
func TestItemThatMayNotBeSeen(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		link, q := b.linked()
		offer(t, b.queue(), "x")
		it := b.reserve(q)
		unreadable(link, recipestest.OpGetData, 1)
		unreadable(link, recipestest.OpExists, 2)
		suite.Wait(t, it.Done())
		comesBack(t, b, 2)
	})
}

// The answer to a reservation is lost, and an operator ends its first claim before the client can
// look. The other claims come back though their session lives on.
func TestFirstClaimEndsWhileItsOutcomeIsUnknown(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		link, q := b.linked()
		offer(t, q, "a", "b", "c")
		link.Delay(time.Millisecond) // a transaction reserves the first entry, and the next one the others
		answers := 0
		when(link, func(operations []string) bool {
			if first("answer to multi")(operations) {
				answers++
			}
			return answers == 2
		}, func() {
			link.Cut()
			defer link.Heal()
			time.Sleep(time.Second)
			first := list(t, queue.New(b.client, b.path))[1]
			require.NotZero(t, first.Holder)
			require.NoError(t, queue.New(b.client, b.path).Remove(t.Context(), first.ID))
		})

		var items [3]*queue.Item
		var wait suite.Group
		for i := range items {
			wait.Go(func() (err error) {
				items[i], err = q.TryReserve(t.Context())
				return err
			})
			synctest.Wait()
		}
		require.ErrorIs(t, wait.Wait(), queue.ErrEmpty)
		for _, it := range items {
			if it != nil {
				require.NotEqual(t, "b", string(it.Data()))
				require.NoError(t, it.Ack(t.Context()))
			}
		}
		require.Empty(t, list(t, q))
	})
}

// While the outcome of the last acknowledgement is unknown, the server deletes the directory of the
// claims (because it is empty). That settles nothing, and nothing is lost.
func TestDirectoryOfClaimsIsReapedWhileAnOutcomeIsUnknown(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		for range 2 {
			link, q := b.linked()
			offer(t, q, "a", "b")
			it := b.reserve(q)
			when(link, first("answer to multi"), func() {
				link.Cut()
				time.Sleep(500 * time.Millisecond)
				b.srv.Embedded().ReapContainers()
				link.Heal()
			})

			require.NoError(t, it.Ack(t.Context()))
			b.srv.Embedded().ReapContainers()
			data := suite.Got(q.Poll(t.Context()))(t)
			require.Equal(t, "b", string(data))
		}
	})
}

// An operator deletes the node of a consumer at any step of a Poll. The Poll takes the entry all
// the same.
func TestConsumerIsDeletedWhileItTakes(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		suite.Sweep(t, func(step int) bool {
			link, q := b.linked()
			offer(t, queue.New(b.client, b.path), "a")
			met := suite.At(link, step, func() {
				for _, node := range children(t, b.client, b.path+"/zkrecipes/consumers") {
					require.NoError(t, b.conn().Delete(b.path+"/zkrecipes/consumers/"+node, -1))
				}
			})
			data := suite.Got(q.Poll(t.Context()))(t)
			require.Equal(t, "a", string(data))
			return met()
		})
	})
}

// Without its receipt an outcome is uncertain. Nothing else is wrong then.
func TestDeletedReceiptMakesTheOutcomeUncertain(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		link, q := b.linked()
		offer(t, q, "a")
		it := b.reserve(q)
		for receipts, call := range map[string]func() error{
			"/zkrecipes/receipts":  func() error { _, err := q.Offer(t.Context(), []byte("b")); return err },
			"/zkrecipes/consumers": func() error { return it.Ack(t.Context()) },
		} {
			link.LoseReply(recipestest.OpMulti, 1)
			when(link, first("getData"), func() {
				for _, node := range children(t, b.client, b.path+receipts) {
					require.NoError(t, b.conn().Delete(b.path+receipts+"/"+node, -1))
				}
			})
			err := call()
			require.Equal(t, 1, strings.Count(err.Error(), protocol.ErrUncertain.Error()), err)
			require.ErrorIs(t, err, protocol.ErrUncertain)
			require.NotErrorIs(t, err, zk.ErrNoNode)
		}
		offer(t, q, "c")
		require.Equal(t, []string{"b", "c"}, drain(t, t.Context(), q))
	})
}

// Of several Acks in one transaction one has no claim any more, or all are refused together. The
// others are not held up.
func TestAcksOfABatchFailAlone(t *testing.T) {
	t.Parallel()
	for _, fail := range [][]int{{1}, {2}, {1, 2}} {
		bubble(t, func(t *testing.T, b *bench) {
			link, q := b.linked()
			offer(t, b.queue(), "a", "b", "c")
			items := []*queue.Item{b.reserve(q), b.reserve(q), b.reserve(q)}
			link.Delay(time.Millisecond) // the loss is heard of later
			if len(fail) == 1 {
				require.NoError(t, b.conn().Delete(items[fail[0]].Check().Path, -1))
			}
			var acked [3]<-chan error
			for i, it := range items {
				acked[i] = suite.Later(func() error { return it.Ack(t.Context()) })
				synctest.Wait() // the first one is sent alone
			}
			time.Sleep(3 * time.Millisecond / 2)
			if len(fail) == 2 {
				link.Fail(recipestest.OpMulti, "", int32(zkwire.CodeBadArguments), 1)
			}
			for i := range items {
				require.Equal(t, slices.Contains(fail, i), suite.Wait(t, acked[i]) != nil, "%d of %v", i, fail)
			}
			drain(t, t.Context(), b.queue())
		})
	}
}

// The records have changed and may not be listed, and the call says so.
func TestLookThatIsRefusedEndsTheCall(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		link, q := b.linked()
		offer(t, b.queue(), "x")
		it := b.reserve(b.queue())
		require.ErrorIs(t, poll(t.Context(), q), queue.ErrEmpty)
		synctest.Wait() // the session has looked for records to sweep
		when(link, first("sync"), func() {
			require.NoError(t, it.Nack(t.Context()))
			consumer := b.path + "/zkrecipes/consumers/" + children(t, b.client, b.path+"/zkrecipes/consumers")[0]
			require.NoError(t, b.conn().Delete(consumer, -1))
			time.Sleep(10 * time.Millisecond) // the event comes
			unreadable(link, recipestest.OpGetChildren, 1)
		})
		require.ErrorIs(t, poll(t.Context(), q), zk.ErrNoAuth)
		require.NoError(t, poll(t.Context(), q))
	})
}

// Takers share a transaction whose answer is lost, under a quota that is full for a moment. All but
// one of them leave, and their entries go back. That says nothing about the entry of the last one.
func TestTakersLeaveATransactionOfUnknownOutcome(t *testing.T) {
	t.Parallel()
	const takers = 4
	for stays := range takers {
		bubble(t, func(t *testing.T, b *bench) {
			link, q := b.linked()
			offer(t, q, "first")
			require.NoError(t, b.reserve(q).Nack(t.Context())) // so the directory of returned entries exists
			require.Equal(t, []string{"first"}, drain(t, t.Context(), q))
			leaving, leave := context.WithCancel(t.Context())
			quota := false
			var meet func([]string)
			meet = func(operations []string) {
				ends := strings.Count(strings.Join(operations, " "), "/zkrecipes/held/")
				switch {
				case ends < 2 || !strings.HasPrefix(operations[0], "delete"):
				case !quota:
					quota = true
					link.FailPart(ends+1, -125)
				default:
					link.Cut()
					leave()
					time.AfterFunc(time.Second, link.Heal)
					return
				}
				link.Meet(1, meet)
			}
			link.Meet(1, meet)

			var mu sync.Mutex
			var wait sync.WaitGroup
			var taken []string
			for i := range takers {
				ctx := leaving
				if i == stays {
					ctx = t.Context()
				}
				wait.Go(func() {
					data, err := q.Take(ctx)
					mu.Lock()
					defer mu.Unlock()
					if err == nil {
						taken = append(taken, string(data))
					}
				})
			}
			time.Sleep(time.Second) // all of them wait
			link.Delay(10 * time.Millisecond)
			fill(t, b.queue(), takers)
			wait.Wait()
			time.Sleep(time.Minute)
			back := list(t, b.queue())
			require.Len(t, back, takers-len(taken))
			for _, info := range back {
				require.Zero(t, info.Holder)
			}
			for _, data := range drain(t, t.Context(), b.queue()) {
				require.NotContains(t, taken, data)
			}
		})
	}
}

// The session is lost with the answer to a removal. By the next session, the queue was created
// again and has another entry with that ID.
func TestRemovalDoesNotHitALaterEntry(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		link, q := b.linked()
		offer(t, q, "old")
		when(link, first("delete"), link.StallReplies)
		removed := suite.Later(func() error { return q.Remove(t.Context(), firstID) })
		time.Sleep(time.Second)
		deleteAll(b.conn(), b.path)
		offer(t, b.queue(), "new")
		time.Sleep(time.Minute)
		link.Heal()
		require.NoError(t, suite.Wait(t, removed))
		require.Equal(t, []string{"new"}, drain(t, t.Context(), q))
	})
}
