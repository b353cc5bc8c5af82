// Package clock reads the wall clock, so that tests can step it. (In a testing/synctest bubble the
// wall clock and the monotonic clock never differ otherwise.)
package clock

import (
	"sync"
	"sync/atomic"
	"time"
)

// A step changes the wall clock of all times after it.
type step struct {
	at time.Time
	by time.Duration
}

var (
	steps atomic.Pointer[[]step] // nil except in tests
	mu    sync.Mutex             // serializes Step
)

// Wall returns t without its monotonic clock reading.
func Wall(t time.Time) time.Time {
	wall := t.Round(0)
	if stepped := steps.Load(); stepped != nil {
		for _, s := range *stepped {
			if !t.Before(s.at) {
				wall = wall.Add(s.by)
			}
		}
	}
	return wall
}

// Step sets the wall clock forward by d now, or back if d is negative. The monotonic clock and the
// timers that follow it don't change. So after a step forward, a process sees the same as after it
// was suspended. Only tests that aren't parallel to others may use steps, because they apply to
// every bubble.
func Step(d time.Duration) {
	mu.Lock()
	defer mu.Unlock()
	var all []step
	if before := steps.Load(); before != nil {
		all = append(all, *before...)
	}
	all = append(all, step{time.Now(), d})
	steps.Store(&all)
}

// Reset undoes all steps.
func Reset() { steps.Store(nil) }
