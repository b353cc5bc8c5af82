package protocol

import (
	"bytes"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

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
		require.True(t, isClosed(d.idle))
		require.Less(t, events, maxCalls)
		require.Contains(t, told, Lost)
		require.Equal(t, Suspended, told[len(told)-1])
		for i := 1; i < len(told); i++ {
			require.NotEqual(t, told[i-1], told[i])
		}
	})
}

type busy struct{ error }

func (busy) Busy() bool { return true }

// Of contenders that do not wait and would have to there may be very many.
func TestLogObserverLogsBusyAtLevelDebug(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	o := LogObserver(slog.New(slog.NewTextHandler(&log, nil)))
	o.Observe(Event{Kind: EventAcquired, Err: busy{errors.New("busy")}})
	require.Empty(t, log.String())
	o.Observe(Event{Kind: EventAcquired, Err: errors.New("failed")})
	require.Contains(t, log.String(), "not acquired")
}

func TestLogObserverWritesWhatAnEventHas(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	LogObserver(slog.New(slog.NewTextHandler(&log, nil))).Observe(Event{
		Kind: EventLost, Recipe: "rwlock", Mode: "read", Path: "/a", Session: 0x12, Token: 7, Count: 3,
		Duration: time.Second, Err: errors.New("gone"),
	})
	require.Contains(t, log.String(), "recipe=rwlock path=/a mode=read session=0x12 token=7 count=3 duration=1s error=gone")
}
