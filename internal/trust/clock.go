package trust

import (
	"time"

	"github.com/zkrecipes/zkrecipes/internal/clock"
)

// Elapsed returns the time from since to now, by the clock that went further. (The monotonic clock
// stops while the machine sleeps, and the wall clock can be set back.)
func Elapsed(since, now time.Time) time.Duration {
	return max(now.Sub(since), clock.Wall(now).Sub(clock.Wall(since)))
}

// Earlier returns the earlier of two moments.
func Earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// Later returns the later of two moments.
func Later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
