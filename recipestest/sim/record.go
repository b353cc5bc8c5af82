package sim

import (
	"sync"
	"time"
)

// A record collects the content of a timeline. Its zero value is ready to use.
type record struct {
	mu     sync.Mutex // protects the fields below
	faults []Fault
	spans  []span
	notes  []note
	turns  map[string]int // how many have ended, by the client's name
}

type span struct {
	lane, text string
	from, to   time.Duration
	lost       bool
}

type note struct {
	lane, text string
	at         time.Duration
}

func (r *record) fault(f Fault) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults = append(r.faults, f)
}

// turn notes the end of a turn, and returns how many turns of the client have ended.
func (r *record) turn(client string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.turns == nil {
		r.turns = make(map[string]int)
	}
	r.turns[client]++
	return r.turns[client]
}

func (r *record) span(lane, text string, from, to time.Duration, lost bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.spans = append(r.spans, span{lane, text, from, to, lost})
}

func (r *record) note(at time.Duration, lane, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.notes = append(r.notes, note{lane, text, at})
}
