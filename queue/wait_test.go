package queue_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/internal/zkwire"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/queue"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// The two consumers that have waited longest are cut off. The third takes over after a second.
func TestTwoDeadWaitersStopNobody(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		ctx, stop := context.WithCancel(t.Context())
		var wait suite.Group
		got := make(chan int, 10)
		var links []*recipestest.Link
		for i := range 10 {
			link, q := b.linked()
			links = append(links, link)
			wait.Go(func() error {
				for {
					if _, err := q.Take(ctx); err != nil {
						return nil
					}
					got <- i
				}
			})
			time.Sleep(100 * time.Millisecond)
		}

		// Some take an entry and go to the end of the line. So others have become the deputies.
		time.Sleep(10 * time.Second)
		for range 4 {
			offer(t, b.queue(), "x")
		}
		took := make([]int, 10)
		for range 4 {
			took[suite.Wait(t, got)]++
		}
		time.Sleep(10 * time.Second)

		// The first two in line are dead.
		first := slices.Index(took, 0)
		links[first].Stall()
		links[first+1].Stall()
		began := time.Now()
		offer(t, b.queue(), "x")
		suite.Wait(t, got)
		require.LessOrEqual(t, time.Since(began), 1100*time.Millisecond)
		stop()
		links[first].Heal()
		links[first+1].Heal()
		require.NoError(t, wait.Wait())
	})
}

// When a queue gets long, all waiting consumers come at once and share it.
func TestWaitersShareALongQueue(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		const consumers, each = 20, 100
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		var wait suite.Group
		var taken atomic.Int64
		shares := make([]int, consumers)
		for i := range consumers {
			link, q := b.linked()
			link.Delay(5 * time.Millisecond)
			wait.Go(func() error {
				for {
					if _, err := q.Take(ctx); err != nil {
						return nil
					}
					if shares[i]++; taken.Add(1) == consumers*each {
						stop()
					}
				}
			})
		}

		time.Sleep(10 * time.Second)
		fill(t, b.queue(), consumers*each)
		require.NoError(t, wait.Wait())
		require.Greater(t, slices.Min(shares), each/2, shares)
		require.Less(t, slices.Max(shares), 2*each, shares)
	})
}

// A single consumer gets all entries in order, even if the queue gets long as it comes in line.
func TestLoneWaiterKeepsTheOrder(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		link, q := b.linked()
		producer := b.queue()
		require.ErrorIs(t, poll(t.Context(), producer), queue.ErrEmpty)
		when(link, first("exists "+b.path), func() { producer.OfferAll(context.Background(), numbered(0, 100)) })
		var got [][]byte
		for range 100 {
			data := suite.Got(q.Take(t.Context()))(t)
			got = append(got, data)
		}
		require.Equal(t, texts(numbered(0, 100)), texts(got))
	})
}

// A consumer that waits beside many nodes that are no entries sends only pings.
func TestForeignNodesKeepNoWaiterBusy(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		for i := range 100 {
			lasting(t, b.client, fmt.Sprintf("%s/foreign-%d", b.path, i))
		}
		link, q := b.linked()
		var wait suite.Group
		wait.Go(func() error { _, err := q.Take(t.Context()); return err })
		time.Sleep(time.Second)
		before := link.Count(recipestest.OpAny)
		time.Sleep(30 * time.Second)
		require.Equal(t, before, link.Count(recipestest.OpAny))
		offer(t, b.queue(), "x")
		require.NoError(t, wait.Wait())
	})
}

// Waiting consumers take turns, wherever they are.
func TestFarWaiterGetsItsShare(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		ctx, stop := context.WithCancel(t.Context())
		var wait suite.Group
		shares := make([]int, 3)
		for i, d := range []time.Duration{time.Millisecond, time.Millisecond, 10 * time.Millisecond} {
			link, q := b.linked()
			link.Delay(d)
			wait.Go(func() error {
				for {
					if _, err := q.Take(ctx); err != nil {
						return nil
					}
					shares[i]++
				}
			})
		}
		time.Sleep(time.Second)
		n, producer := suite.Size(300, 100), b.queue()
		for range n {
			offer(t, producer, "x")
			time.Sleep(100 * time.Millisecond)
		}
		stop()
		require.NoError(t, wait.Wait())
		require.Greater(t, shares[2], n/3/2)
	})
}

// A deputy looks after entries of other consumers, too. Then it lets those ahead come first again.
func TestDeputyThatHasLookedComesSecond(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		ctx, stop := context.WithCancel(t.Context())
		var wait suite.Group
		got := make(chan int, 2)
		for i, d := range []time.Duration{5 * time.Millisecond, 0} {
			link, q := b.linked()
			link.Delay(d)
			wait.Go(func() error {
				if _, err := q.Take(ctx); err == nil {
					got <- i
				}
				return nil
			})
			time.Sleep(time.Second)
		}

		// Another consumer comes, so both look whether one has gone.
		lasting(t, b.client, b.path+"/zkrecipes/consumers/another")
		time.Sleep(5 * time.Second)

		producer := b.queue()
		offer(t, producer, "x")
		require.Equal(t, 0, suite.Wait(t, got), "the first is farther away")
		offer(t, producer, "y")
		suite.Wait(t, got)
		require.NoError(t, wait.Wait())
		stop()
	})
}

// A consumer that may not stand in line looks from time to time, and says so.
func TestWaitWithoutAPlaceInLine(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		link := b.srv.Link(t)
		client, log := logged(link.Client(t))
		q, producer := queue.New(client, b.path), b.queue()
		offer(t, producer, "a")
		require.Equal(t, []string{"a"}, drain(t, t.Context(), q))
		link.Fail(recipestest.OpCreate, "", int32(zkwire.CodeNoAuth), 1)
		taken := suite.Later(func() error { _, err := q.Take(t.Context()); return err })
		time.Sleep(time.Second)
		require.Equal(t, 1, strings.Count(log(), "waits without a place in line"))
		offer(t, producer, "b")
		require.NoError(t, suite.Wait(t, taken))
	})
}

// An entry of a dead consumer that may not be read doesn't hold up others. It is logged once.
func TestLostEntryThatMayNotBeRead(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		client, log := logged(b.srv.Client(t))
		q, dying := queue.New(client, b.path), b.queue()
		offer(t, dying, "a", "b", "c")
		first, second := b.reserve(dying), b.reserve(dying)
		open := zk.WorldACL(zk.PermAll)
		claim := first.Check().Path
		_, err := b.conn().SetACL(claim, zk.WorldACL(zk.PermAdmin), -1)
		require.NoError(t, err)
		b.crash(second)
		for _, want := range []string{"b", "c"} {
			data := suite.Got(q.Poll(t.Context()))(t)
			require.Equal(t, want, string(data))
		}

		for range 10 {
			require.ErrorIs(t, poll(t.Context(), q), queue.ErrEmpty)
			time.Sleep(time.Second)
		}
		require.Equal(t, 1, strings.Count(log(), "not put back yet"))

		_, err = b.conn().SetACL(claim, open, -1)
		require.NoError(t, err)
		time.Sleep(time.Minute)
		require.Equal(t, []string{"a"}, drain(t, t.Context(), q))
	})
}

// An entry of a dead consumer that can't be put back for a while is tried again after a second,
// then after two and so on.
func TestLostEntryThatCannotBeMoved(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		dying := b.queue()
		offer(t, dying, "a")
		it := b.reserve(dying)
		link, q := b.linked()
		require.ErrorIs(t, poll(t.Context(), q), queue.ErrEmpty)

		const tries = 4
		var refused atomic.Int64
		for step := range 1000 {
			link.Meet(step+1, func(operations []string) {
				moves := first("delete")(operations) && strings.Contains(strings.Join(operations, " "), "/returned/")
				if moves && refused.Add(1) <= tries {
					link.FailPart(2, int32(zkwire.CodeInvalidACL))
				}
			})
		}

		b.crash(it)
		began := time.Now()
		data := suite.Got(q.Take(suite.Lasting(t)))(t)
		require.Equal(t, "a", string(data))
		require.InDelta(t, 1+2+4+8, time.Since(began).Seconds(), 2)
	})
}

// Consumers that may not read an entry let those behind them look.
func TestWaitersWithoutRightsLetOthersLook(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		ctx, stop := context.WithCancel(t.Context())
		var waiting suite.Group
		wait := func(c *protocol.Client) {
			waiting.Go(func() error { defer stop(); _, err := queue.New(c, b.path).Take(ctx); return err })
			time.Sleep(time.Second)
		}
		for range 3 {
			wait(b.srv.Client(t))
		}
		wait(b.srv.Client(t, protocol.WithAuth("digest", []byte("u:p"))))
		_, err := b.conn().Create(b.path+"/qn-", []byte("x"), zk.FlagSequence, zk.DigestACL(zk.PermAll, "u", "p"))
		require.NoError(t, err)
		waiting.Wait()
	})
}

// A taker leaves while its request is lost, so the entry is still there. Another caller of its
// session, which had waited beside it, gets it.
func TestWaiterGetsWhatATakerHasLeft(t *testing.T) {
	for _, get := range []func(context.Context, *queue.Queue) error{
		func(ctx context.Context, q *queue.Queue) error { _, err := q.Take(ctx); return err },
		func(ctx context.Context, q *queue.Queue) error {
			it, err := q.Reserve(ctx)
			if err != nil {
				return err
			}
			return it.Ack(ctx)
		},
	} {
		bubble(t, func(t *testing.T, b *bench) {
			link, q := b.linked()
			ctx, leave := context.WithCancel(t.Context())
			taker := suite.Later(func() error { _, err := q.Take(ctx); return err })
			time.Sleep(time.Second)
			waiter := suite.Later(func() error { return get(t.Context(), q) })
			time.Sleep(time.Second)
			when(link, first("delete"), func() {
				link.Cut()
				leave()
				time.AfterFunc(time.Second, link.Heal)
			})
			offer(t, b.queue(), "a")
			require.Error(t, suite.Wait(t, taker))
			require.NoError(t, suite.Wait(t, waiter))
		})
	}
}

// An entry that could not be taken is set aside, and then it is gone. Waiting costs nothing all the
// same.
func TestWaitAfterTheEndOfAnEntryThatWasSetAside(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		link, q := b.linked()
		foreign := b.path + "/" + firstID
		lasting(t, b.client, foreign+"/child")
		taken := suite.Later(func() string { data, _ := q.Take(t.Context()); return string(data) })
		time.Sleep(time.Second)
		deleteAll(b.conn(), foreign)
		time.Sleep(time.Second)
		before := link.Count(recipestest.OpAny)
		time.Sleep(2 * time.Minute)
		require.Less(t, link.Count(recipestest.OpAny)-before, 10)
		offer(t, b.queue(), "x")
		require.Equal(t, "x", suite.Wait(t, taken))
	})
}

// However many entries a consumer may not read, it gets those behind them.
func TestEntriesBehindManyThatMayNotBeRead(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		var ops []any
		for i := range 5000 {
			ops = append(ops, &zk.CreateRequest{Path: fmt.Sprintf("%s/qn-%010d", b.path, i), Acl: zk.WorldACL(zk.PermDelete)})
		}
		_, err := b.conn().Multi(ops...)
		require.NoError(t, err)
		create(t, b.client, b.path+"/qn-0000999999", "x", zk.PermAll)
		data := suite.Got(b.queue().Take(suite.Within(t, time.Minute)))(t)
		require.Equal(t, "x", string(data))
	})
}
