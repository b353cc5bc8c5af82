package sim

import (
	"fmt"
	"path"
	"slices"
	"sync"
	"time"
)

// forced records which sessions and nodes were ended by force, and when. Their holders notice only
// later. Its zero value is ready to use.
type forced struct {
	begun moments // when they may have ended
	done  moments // when they have certainly ended
}

// moments are the first moments of sessions and nodes.
type moments struct {
	mu    sync.Mutex // protects first
	first map[any]time.Time
}

// The keys of moments. A node has two keys.
type (
	bySession int64
	byToken   int64
	byName    string
)

func nodeKeys(node string, czxid int64) []any { return []any{byName(path.Base(node)), byToken(czxid)} }

func (m *moments) note(keys ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.first == nil {
		m.first = make(map[any]time.Time)
	}
	for _, key := range keys {
		if _, ok := m.first[key]; !ok {
			m.first[key] = time.Now()
		}
	}
}

// since returns the earliest moment of the keys, if there is one.
func (m *moments) since(keys []any) (at time.Time, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, key := range keys {
		if found, is := m.first[key]; is && (!ok || found.Before(at)) {
			at, ok = found, true
		}
	}
	return at, ok
}

// A disturbance is a time in which a fault kept a client (or all clients) from noticing things.
type disturbance struct {
	place    int // 0: all clients
	from, to time.Time
}

// disturb notes what a fault that begins now can keep from its victim.
func (w *World) disturb(f Fault) {
	d := disturbance{place: f.Client, from: time.Now(), to: time.Now()}
	switch f.Kind {
	// These end something, but hide nothing from the client.
	case Deletion, Uproot, Reap, Expiry:
		return
	case LoseReply, TornRequest, TornReply, CutTwice: // they wait for a packet
		d.to = d.to.Add(time.Hour)
	default:
		if slices.Contains(lasting, f.Kind) {
			d.to = d.to.Add(f.Lasts)
		}
	}

	w.mu.Lock()
	defer w.mu.Unlock()
	w.disturbed = append(w.disturbed, d)
}

// sound reports whether no fault has disturbed a client between from and to, or in the two session
// timeouts before.
func (w *World) sound(c *Client, from, to time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !slices.ContainsFunc(w.disturbed, func(d disturbance) bool {
		return (d.place == 0 || d.place == 1+c.place.index) && d.from.Before(to) && d.to.Add(2*w.Timeout).After(from)
	})
}

// late returns an error if a client, at held or later, was too late to notice that it had lost
// something by force. ended are the keys of possible reasons. If events report the loss, the client
// must notice it as soon as packets allow. If they don't, or if there are other faults in the way,
// it has two session timeouts.
func (w *World) late(c *Client, ended []any, held time.Time, events bool) error {
	at, ok := w.forced.done.since(ended)
	most := 2 * w.Timeout
	if ok && events && w.sound(c, at, held) {
		// Four round trips and a tenth of a second: see Turn.
		most = 4*2*c.latency + 100*time.Millisecond
	}
	if late := held.Sub(at); ok && late > most {
		return fmt.Errorf("has noticed only after %v that it had lost it, and may take %v", late, most)
	}
	return nil
}
