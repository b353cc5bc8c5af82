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
	writeLimit  = 10 * time.Second // a browser that takes nothing for so long has gone
)

// A message is what a browser is told: all that there is, or what has changed since the message
// before.
type message struct {
	Reset   *reset            `json:"reset,omitempty"` // forget all that was told before
	Now     int64             `json:"now"`             // the clock that events are timed by
	Ready   bool              `json:"ready"`           // the tree has been read once
	Set     []json.RawMessage `json:"set,omitempty"`   // rows
	Removed []string          `json:"removed,omitempty"`
	Events  []event           `json:"events,omitempty"`
	Status  *status           `json:"status,omitempty"`
}

// reset is what a browser is told once.
type reset struct {
	Path     string `json:"path"`
	Servers  string `json:"servers,omitempty"`
	CanBreak bool   `json:"can_break"`
	Key      string `json:"key,omitempty"` // to be sent with a deed
}

// since returns what has changed after a version, or all for -1, the present version, and a channel
// that is closed when there is another one.
func (h *Hub) since(version int64) (m message, present int64, changed <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()

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

// enter counts a browser, and reports whether there is room for it.
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

// serveEvents sends a browser what there is, and then what changes, until it leaves. A browser that
// was here before says what it has got in Last-Event-ID.
func (h *Hub) serveEvents(w http.ResponseWriter, r *http.Request) {
	if !h.enter() {
		http.Error(w, fmt.Sprintf("there are %d browsers already: close one", maxBrowsers), http.StatusServiceUnavailable)
		return
	}
	defer h.leave()

	w.Header().Set("Content-Type", "text/event-stream")
	out := http.NewResponseController(w)
	send := func(id, kind string, v any) error {
		data, err := json.Marshal(v) // which has no line break
		if err != nil {
			return err
		}
		if id != "" {
			id = "id: " + id + "\n"
		}
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
				// The connection lives, and this is what the page costs the servers.
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

// versionOf returns the version that an event's ID names, or -1.
func (h *Hub) versionOf(id string) int64 {
	boot, number, _ := strings.Cut(id, "-")
	version, err := strconv.ParseInt(number, 10, 64)
	if boot != h.boot || err != nil {
		return -1
	}
	return version
}
