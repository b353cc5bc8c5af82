// Package clock reads the wall clock of moments, so that tests can step it. In a testing/synctest
// bubble the wall clock and the monotonic clock never differ otherwise.
package clock

import (
	"sync"
	"sync/atomic"
	"time"
)

// A step changes the wall clock of all moments from one on.
type step struct {
	at time.Time
	by time.Duration
}

var (
	steps atomic.Pointer[[]step] // nil but in tests
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

// Step sets the wall clock forward by d now, or back if d is negative. The monotonic clock does not
// change, and timers follow it. So a step forward is what a process finds that has been suspended.
// Steps are for tests that are not parallel to others: they apply to every bubble.
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
