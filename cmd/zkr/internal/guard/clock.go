//go:build unix

package guard

import (
	"time"

	"golang.org/x/sys/unix"
)

// An instant is nanoseconds of a clock that all processes of a machine share, and that goes on
// while the machine sleeps.
type instant = int64

func clock() instant {
	var t unix.Timespec
	if err := unix.ClockGettime(clockID, &t); err != nil {
		return time.Now().UnixNano()
	}
	return t.Nano()
}

// at returns t by the clock. Of t's own two clocks, the one that went further counts. A process
// that is paused in here gets an instant that is too early.
func at(t time.Time) instant {
	began := clock()
	now := time.Now()
	return began + int64(min(t.Sub(now), t.Round(0).Sub(now.Round(0))))
}
