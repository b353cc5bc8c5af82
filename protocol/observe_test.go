package protocol

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// TestBlockedObserverBoundsTheQueueAndMissesNoLoss posts events and states while a call blocks.
func TestBlockedObserverBoundsTheQueueAndMissesNoLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d dispatcher
		var told []State
		events := 0
		release := make(chan struct{})
		d.post(func() { <-release }, 0)
		synctest.Wait()
		tell := func(s State) { d.post(func() { told = append(told, s) }, s) }
		leftOut := 0
		for range 5 * maxCalls {
			if d.post(func() { events++ }, 0) {
				leftOut++
			}
			tell(Suspended)
			tell(Connected)
		}
		require.Equal(t, 1, leftOut, "warnings")
		for range 5 * maxCalls {
			tell(Suspended)
			tell(Lost)
			tell(Connected)
		}
		tell(Suspended)
		require.Less(t, len(d.queue), maxCalls+10)
		close(release)
		synctest.Wait()
		require.Less(t, events, maxCalls)
		require.Contains(t, told, Lost)
		require.Equal(t, Suspended, told[len(told)-1])
		for i := 1; i < len(told); i++ {
			require.NotEqual(t, told[i-1], told[i])
		}
	})
}
