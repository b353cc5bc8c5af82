package sim

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Exclusive is the history of something (a lock, or leadership) that has one holder at a time and
// increasing tokens.
type Exclusive struct {
	turns
	repeats  bool // see Repeats
	ended    []forcedEnd
	listings []listing
}

// A forcedEnd is a time in which a hold may have been ended by force.
type forcedEnd struct{ from, to time.Time }

// Exclusive begins a history, which is checked in the end.
func (w *World) Exclusive(what string) *Exclusive {
	e := &Exclusive{turns: w.turns(what)}
	w.Check(e.check)
	return e
}

// Repeats says that a session can be granted the same token again, right after it has given it
// back. It returns e.
func (e *Exclusive) Repeats() *Exclusive {
	e.repeats = true
	return e
}

// Begin notes that a call of c, made at called, was granted g. It blocks while the process of c
// stands still.
func (e *Exclusive) Begin(c *Client, called time.Time, g Grant) *Turn {
	return e.begin(c, called, g, true)
}

// Ended notes that a call, between from and to, may have ended a hold by force. If a turn hadn't
// ended before, it counts only until that call.
func (e *Exclusive) Ended(from, to time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ended = append(e.ended, forcedEnd{from, to})
}

// shorten shortens the turns that were ended by force.
func (e *Exclusive) shorten(t *Turn) {
	for _, end := range e.ended {
		if t.called.After(end.to) || t.held.Before(end.from) {
			continue
		}
		t.held = end.from
		// It may have ended before its holder had it, so it was never certainly held.
		if end.from.Before(t.begun) {
			t.held = time.Time{}
		}
	}
}

// check looks for an order of all grants and their ends, each within its time, with one holder at a
// time and increasing tokens.
func (e *Exclusive) check() error {
	all, err := e.final()
	if err != nil {
		return err
	}

	for _, t := range all {
		e.shorten(t)
	}

	// The tokens are the order. Turns with the same token come in the order of their beginnings. A
	// turn that was never certainly held takes no time, so it comes as soon as it can.
	sorted := slices.SortedStableFunc(slices.Values(all), func(a, b *Turn) int {
		return cmp.Or(cmp.Compare(a.token, b.token), a.settled().Compare(b.settled()), a.held.Compare(b.held))
	})
	// Let each turn begin and end as early as it can.
	var last *Turn
	var free time.Time // when last has ended
	for _, t := range sorted {
		if last != nil && (t.begun.Before(free) || t.token == last.token && !e.repeats) {
			return e.explain(last, t)
		}
		last, free = t, later(later(t.called, free), t.held)
	}

	return e.checkArrivals(all)
}

// settled is when the turn has begun at the latest, or at the earliest if it was never certainly
// held.
func (t *Turn) settled() time.Time {
	if t.certain() {
		return t.begun
	}
	return t.called
}

// explain returns an error about two turns that can't follow each other.
func (e *Exclusive) explain(a, b *Turn) error {
	if b.begun.Before(a.begun) {
		a, b = b, a
	}
	if b.begun.Before(a.held) {
		return fmt.Errorf("%s has two holders: %s; %s", e.what, a, b)
	}
	return fmt.Errorf("%s has tokens that do not increase: %s; %s", e.what, a, b)
}
