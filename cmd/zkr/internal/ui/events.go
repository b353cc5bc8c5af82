package ui

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/plain"
)

const (
	maxBrowsers = 256
	heartbeat   = 5 * time.Second
	writeLimit  = 10 * time.Second // a browser that reads nothing for that long has gone
)

// A message to a browser has all rows, or the changes since the message before.
type message struct {
	Reset   *reset            `json:"reset,omitempty"` // forget all former messages
	Now     int64             `json:"now"`             // the clock of the events' times
	Ready   bool              `json:"ready"`           // the tree was read at least once
	Set     []json.RawMessage `json:"set,omitempty"`   // rows
	Removed []string          `json:"removed,omitempty"`
	Events  []event           `json:"events,omitempty"`
	Status  *status           `json:"status,omitempty"`
}

// reset is the part of a message that a browser gets once.
type reset struct {
	Path     string `json:"path"`
	Servers  string `json:"servers,omitempty"`
	CanBreak bool   `json:"can_break"`
	Key      string `json:"key,omitempty"` // a deed must have this key
}

// since returns the changes after a version (or everything, for -1), the present version, and a
// channel that is closed with the next version.
func (h *Hub) since(version int64) (m message, present int64, changed <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()

	// If later removals are forgotten, the browser must start again.
	forgotten := len(h.removed) == maxRemoved && version < h.removed[0].version
	if version < 0 || version > h.version || forgotten {
		version = -1
		m.Reset = &reset{Path: plain.Line(h.config.Path), Servers: plain.Line(h.config.Servers), CanBreak: h.config.Break != nil}
		if h.config.Break != nil {
			m.Reset.Key = h.key
		}
	}

	for _, r := range h.rows {
		if r.version > version {
			m.Set = append(m.Set, r.json)
		}
	}

	// A row that went and came back is in Set, so leave it out here.
	for i := len(h.removed) - 1; i >= 0 && m.Reset == nil && h.removed[i].version > version; i-- {
		if h.rows[h.removed[i].id] == nil {
			m.Removed = append(m.Removed, h.removed[i].id)
		}
	}

	m.Events = h.timeline.since(version)
	if h.status.version > version {
		s := h.status
		m.Status = &s
	}

	m.Now, m.Ready = time.Now().UnixMilli(), h.ready
	return m, h.version, h.changed
}

// enter counts a browser in, and reports whether there is room for it.
func (h *Hub) enter() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.browsers >= maxBrowsers {
		return false
	}
	h.browsers++
	h.wake()
	return true
}

func (h *Hub) leave() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.browsers--
}

// serveEvents sends a browser the present state and then each change, until the browser leaves.
// After a break of the connection, Last-Event-ID says where to continue.
func (h *Hub) serveEvents(w http.ResponseWriter, r *http.Request) {
	if !h.enter() {
		http.Error(w, fmt.Sprintf("there are %d browsers already: close one", maxBrowsers), http.StatusServiceUnavailable)
		return
	}
	defer h.leave()

	w.Header().Set("Content-Type", "text/event-stream")
	out := http.NewResponseController(w)
	send := func(id, kind string, v any) error {
		data, err := json.Marshal(v) // without line breaks
		if err != nil {
			return err
		}

		if id != "" {
			id = "id: " + id + "\n"
		}

		// A browser that stops reading must not hold this goroutine.
		if err := out.SetWriteDeadline(time.Now().Add(writeLimit)); err != nil {
			return err
		}

		if _, err := fmt.Fprintf(w, "%sevent: %s\ndata: %s\n\n", id, kind, data); err != nil {
			return err
		}

		return out.Flush()
	}

	beats := time.NewTicker(heartbeat)
	defer beats.Stop()
	m, version, changed := h.since(h.versionOf(r.Header.Get("Last-Event-ID")))
	for {
		if err := send(fmt.Sprintf("%s-%d", h.boot, version), "change", m); err != nil {
			return
		}

		for waiting := true; waiting; {
			select {
			case <-changed:
				waiting = false
			case <-beats.C:
				// The beat shows that the connection works, and how many requests the page has cost
				// so far.
				pulse := map[string]int64{"now": time.Now().UnixMilli(), "requests": h.view.Requests()}
				if err := send("", "beat", pulse); err != nil {
					return
				}
			case <-r.Context().Done():
				return
			}
		}

		m, version, changed = h.since(version)
	}
}

// versionOf returns the version in an event's ID, or -1.
func (h *Hub) versionOf(id string) int64 {
	boot, number, _ := strings.Cut(id, "-")
	version, err := strconv.ParseInt(number, 10, 64)
	if boot != h.boot || err != nil {
		return -1
	}
	return version
}
