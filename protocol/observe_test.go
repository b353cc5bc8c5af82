package protocol

import (
	"bytes"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

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
