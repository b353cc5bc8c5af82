package session

import (
	"runtime"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// TestBlockedCalleeBoundsItsQueueAndMissesNoLoss posts events and states while a call blocks.
func TestBlockedCalleeBoundsItsQueueAndMissesNoLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f Foreign
		var told []State
		var said []string
		var counts []any
		events := 0
		to := CalleeOf("x", "observer", func(message string, args ...any) { said, counts = append(said, message), append(counts, args...) })
		release := make(chan struct{})
		f.Post(to, func() { <-release }, 0)
		synctest.Wait()
		tell := func(s State) { f.Post(to, func() { told = append(told, s) }, s) }

		for range 5 * maxCalls {
			f.Post(to, func() { events++ }, 0)
			tell(Suspended)
			tell(Connected)
		}

		for range 5 * maxCalls {
			tell(Suspended)
			tell(Lost)
			tell(Connected)
		}

		tell(Suspended)
		close(release)
		synctest.Wait()
		require.Empty(t, f.queues)
		require.Equal(t, []string{"observer is too slow: events are left out", "observer was too slow: events were left out"}, said)
		require.Equal(t, []any{"count", 5*maxCalls - events}, counts)
		require.Less(t, events, maxCalls)
		require.Contains(t, told, Lost)
		require.Equal(t, Suspended, told[len(told)-1])

		for i := 1; i < len(told); i++ {
			require.NotEqual(t, told[i-1], told[i])
		}
	})
}

// TestCalleeThatDoesNotReturnStopsNoOther has a callee that blocks, a callee that panics and a
// callee that ends its goroutine.
func TestCalleeThatDoesNotReturnStopsNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f Foreign
		var said []string
		release := make(chan struct{})
		defer close(release)
		for _, does := range []struct {
			what  string
			call  func()
			calls int
		}{{"blocks", func() { <-release }, 1}, {"panics", func() { panic("x") }, 2}, {"ends", runtime.Goexit, 2}} {
			to, calls := CalleeOf(does.what, does.what, func(message string, _ ...any) { said = append(said, message) }), 0

			for range 2 {
				f.Post(to, func() { calls++; does.call() }, 0)
			}

			synctest.Wait()
			require.Equal(t, does.calls, calls, does.what)
		}

		require.Equal(t, []string{"panics panicked: x", "ends ended its goroutine"}, said)
	})
}

// A listener that is too slow misses connections that came and went, and no loss.
func TestNoLossIsLeftOutForASlowListener(t *testing.T) {
	q := &calls{due: make([]call, maxCalls)}
	add := func(states ...State) (kept []State) {
		for _, s := range states {
			require.False(t, q.add(call{state: s}))
		}
		for _, c := range q.due[maxCalls:] {
			kept = append(kept, c.state)
		}
		return kept
	}
	require.Equal(t, []State{Connected}, add(Connected, Suspended, Connected, Suspended, Connected))
	require.Equal(t, []State{Connected, Lost, Connected}, add(Lost, Connected))
	require.Equal(t, []State{Connected, Lost, Connected, Suspended, Lost, Closed}, add(Suspended, Lost, Closed))
}
