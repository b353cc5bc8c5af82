package queue_test

import (
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/queue"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// A consumer that has listed the queue sees kazoo's urgent entry before it has taken the rest of
// its listing.
func TestUrgentEntryIsSeenSoon(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		q := b.queue(queue.WithPriorities())
		fill(t, q, 100)
		require.NoError(t, poll(t.Context(), q))

		// This is kazoo's Queue.put(value, priority=1).
		_, err := b.conn().Create(b.path+"/entry-001-", []byte("urgent"), zk.FlagSequence, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
		var got []string
		for range 3 {
			time.Sleep(100 * time.Millisecond)
			data := suite.Got(q.Poll(t.Context()))(t)
			got = append(got, string(data))
		}

		require.Contains(t, got, "urgent")
	})
}

// One listing serves many calls, even if consumers compete or entries have priorities.
func TestListingsAreRare(t *testing.T) {
	for name, opts := range map[string][]queue.Option{"plain": nil, "priorities": {queue.WithPriorities()}} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				const sessions, polls = 2, 100
				fill(t, b.queue(opts...), suite.Size(10_000, 2000))
				var links []*recipestest.Link
				var wait suite.Group
				for range sessions {
					link, q := b.linked(opts...)
					link.Delay(time.Millisecond)
					links = append(links, link)
					wait.Go(func() error {
						for range polls {
							if err := poll(t.Context(), q); err != nil {
								return err
							}
						}
						return nil
					})
				}
				require.NoError(t, wait.Wait())
				for _, l := range links {
					require.Less(t, l.Count(recipestest.OpGetChildren), polls/2)
				}
			})
		})
	}
}

// A call costs the same with a thousand reserved items as with none, even while others come back.
func TestHeldItemsCostNoRequests(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		const holds, n = 1000, 50
		other := b.queue()
		fill(t, other, holds+200)
		link, q := b.linked()
		for range holds {
			defer b.reserve(q).Ack(t.Context())
		}

		before := link.Count(recipestest.OpAny)
		for range n {
			back := b.reserve(other)
			require.NoError(t, back.Nack(t.Context()))
			defer b.reserve(q).Ack(t.Context())
		}

		require.Less(t, (link.Count(recipestest.OpAny)-before)/n, 20)
	})
}

// Consumers that race seldom meet at an entry, and leave none for long, even if a listing takes
// longer than a race lasts.
func TestConsumersThatRaceSeldomMeet(t *testing.T) {
	t.Parallel()
	const sessions, each = 8, 60
	for far, mostReads := range map[time.Duration]int{time.Millisecond: sessions * each * 3 / 2, 600 * time.Millisecond: sessions * each * 2} {
		bubble(t, func(t *testing.T, b *bench) {
			fill(t, b.queue(), 2*sessions*each)
			var links []*recipestest.Link
			var wait suite.Group
			for i := range sessions {
				link, q := b.linked()
				link.Delay(far + time.Duration(i)*20*time.Microsecond)
				links = append(links, link)
				wait.Go(func() error {
					for range each {
						it, err := q.Reserve(t.Context())
						if err != nil {
							return err
						}
						if err := it.Ack(t.Context()); err != nil {
							return err
						}
					}
					return nil
				})
			}
			require.NoError(t, wait.Wait())

			transactions, reads := 0, 0
			for _, l := range links {
				l.Delay(0)
				transactions += l.Count(recipestest.OpMulti)
				reads += l.Count(recipestest.OpGetData)
			}
			require.Less(t, transactions, sessions*each*9/4, "two each would do")
			require.Less(t, reads, mostReads, "one each would do")
		})
	}
}
