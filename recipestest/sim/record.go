package sim

import (
	"fmt"
	"strings"
	"sync"
	"time"
)

// An event is a line of a timeline.
type event struct {
	at   time.Duration
	lane string // a client, or the server
	text string
}

func (e event) String() string {
	return fmt.Sprintf("%9.6fs  %-9s  %s", e.at.Seconds(), e.lane, e.text)
}

// A record collects the events of a timeline. Its zero value is ready to use.
type record struct {
	mu     sync.Mutex // protects the fields below
	faults []Fault
	events []event
	turns  map[string]int // how many have ended, by the client's name
}

func (r *record) fault(f Fault) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults = append(r.faults, f)
}

// turn records the end of a turn and returns how many turns of the client have ended.
func (r *record) turn(client string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.turns == nil {
		r.turns = make(map[string]int)
	}
	r.turns[client]++
	return r.turns[client]
}

// span records something that has lasted for a while.
func (r *record) span(lane, text string, from, to time.Duration, lost bool) {
	end := "ends"
	if lost {
		end = "has failed or was lost"
	}
	r.note(from, lane, text+" begins")
	r.note(to, lane, text+" "+end)
}

func (r *record) note(at time.Duration, lane, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, event{at, lane, text})
}

func lines(events []event) string {
	var b strings.Builder
	for _, e := range events {
		fmt.Fprintln(&b, e)
	}
	return b.String()
}

const (
	packetsFor  = 5 * time.Second // how long before a failure its timeline has packets
	packetLines = 20              // how many of each client's packets its text lists
)

// latestPackets returns the packets of a client's link from the last seconds before until, as its
// trace has them. Their times count from the beginning of the world (the trace's count from when
// the link was made).
func latestPackets(client, trace string, linked, until time.Duration) (all []event) {
	for line := range strings.Lines(trace) {
		at, packet, _ := strings.Cut(strings.TrimSpace(line), "  ")
		since, err := time.ParseDuration(at)
		if err != nil {
			continue
		}
		if since += linked; since > until-packetsFor && since <= until {
			all = append(all, event{since, client, packet})
		}
	}
	return all
}
