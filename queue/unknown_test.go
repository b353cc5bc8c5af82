package queue_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/zkwire"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// unreadable makes the server refuse the next n requests of a kind.
func unreadable(link *recipestest.Link, op recipestest.Op, n int) {
	link.Fail(op, "", int32(zkwire.CodeNoAuth), n)
}

// comesBack waits until the only entry is delivered, though the session that has reserved it lives.
func comesBack(t *testing.T, b *bench, attempt int) {
	t.Helper()
	time.Sleep(time.Second)
	it, err := b.queue().TryReserve(t.Context())
	require.NoError(t, err, b.srv.Dump(b.path))
	require.Equal(t, attempt, it.Attempt())
	require.NoError(t, it.Ack(t.Context()))
}

// The answer to a reservation is lost, and whether it was executed cannot be found out.
func TestReservationOfUnknownOutcome(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		link, q := b.linked()
		offer(t, b.queue(), "x")
		link.LoseReply(recipestest.OpMulti, 1)
		var meet func([]string)
		meet = func(operations []string) {
			if len(operations) > 1 {
				unreadable(link, recipestest.OpExists, 1)
				return
			}
			link.Meet(1, meet)
		}
		link.Meet(1, meet)
		_, err := q.TryReserve(t.Context())
		require.ErrorContains(t, err, "no permission to read")
		comesBack(t, b, 1)
	})
}

// An item is given back, and whether that was executed cannot be found out, once or several times.
func TestReturnOfUnknownOutcome(t *testing.T) {
	for n := 1; n <= 3; n++ {
		inBubble(t, func(t *testing.T, b *bench) {
			link, q := b.linked()
			offer(t, b.queue(), "x")
			it := b.reserve(q)
			unreadable(link, recipestest.OpGetData, n)
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
			require.ErrorContains(t, it.Nack(t.Context()), "no permission to read")
			comesBack(t, b, 2)
		})
	}
}

// An item whose claim may not be seen is lost, but its entry is not.
func TestItemThatMayNotBeSeen(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		link, q := b.linked()
		offer(t, b.queue(), "x")
		it := b.reserve(q)
		unreadable(link, recipestest.OpGetData, 1)
		unreadable(link, recipestest.OpExists, 2)
		await(t, it.Done())
		comesBack(t, b, 2)
	})
}
