package sim

import (
	"fmt"
	"time"

	"github.com/anishathalye/porcupine"
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
	w.held.expect()
	e := &Exclusive{turns: turns{world: w, what: what}}
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

	var ops []porcupine.Operation
	add := func(t *Turn, granted bool, from, to time.Time) {
		ops = append(ops, porcupine.Operation{
			Input: move{granted, t.token}, Call: from.UnixNano(), Return: to.UnixNano(), ClientId: len(ops),
		})
	}

	for _, t := range all {
		add(t, true, t.called, t.begun)
		add(t, false, later(t.called, t.held), t.over)
	}

	if porcupine.CheckOperations(oneAtATime(e.repeats), ops) {
		return e.checkArrivals(all)
	}

	for _, a := range all {
		for _, b := range all {
			switch {
			case a == b || !a.certain():
			case b.begun.Before(a.held) && !b.begun.Before(a.begun):
				return fmt.Errorf("%s has two holders: %s; %s", e.what, a, b)
			case a.token == b.token && a.session != b.session:
				return fmt.Errorf("%s has a token in two sessions: %s; %s", e.what, a, b)
			case a.begun.Before(b.called) && a.token >= b.token && !(e.repeats && a.token == b.token):
				return fmt.Errorf("%s has tokens that do not increase: %s; %s", e.what, a, b)
			}
		}
	}

	return fmt.Errorf("%s has no order with one holder at a time: %v", e.what, all)
}

// A move is a grant, or the end of a grant.
type move struct {
	granted bool
	token   int64
}

type holding struct{ token, last int64 }

// oneAtATime is the model. If tokens can repeat, a token may follow itself.
func oneAtATime(repeats bool) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return holding{} },
		Step: func(state, input, _ any) (bool, any) {
			s, m := state.(holding), input.(move)
			if m.granted {
				return s.token == 0 && (m.token > s.last || repeats && m.token == s.last), holding{m.token, m.token}
			}
			return s.token == m.token, holding{0, s.last}
		},
	}
}
