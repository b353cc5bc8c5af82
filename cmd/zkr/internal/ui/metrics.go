package ui

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/survey"
)

// serveMetrics serves gauges of all rows for Prometheus. docs/zkr.md describes each gauge.
func (h *Hub) serveMetrics(w http.ResponseWriter, _ *http.Request) {
	h.wake() // so that the next scrape is new, even without a browser
	lines := make(map[string][]string)
	h.mu.Lock()
	up, unread, now := 1, 0, time.Now().UnixMilli()
	if !h.status.Live || !h.ready || h.status.Error != "" {
		up = 0
	}

	for _, r := range h.rows {
		if up == 0 || r.Unread || r.Recipe == survey.Hidden { // nothing is known, so there is no gauge
			unread++
			continue
		}

		labels := fmt.Sprintf("{path=%q,recipe=%q}", r.Path, r.Recipe)
		add := func(name string, value any) {
			lines[name] = append(lines[name], fmt.Sprintf("%s%s %v\n", name, labels, value))
		}

		age := func(name string, since int64) {
			if since > 0 {
				add(name, float64(max(now-since, 0))/1000)
			}
		}

		add("zkr_held", r.Holding)
		add("zkr_waiters", r.Waiting)
		add("zkr_trouble", map[bool]int{true: 1}[r.Trouble])
		if r.Queue != nil {
			add("zkr_queue_elements", r.Queue.Length)
			age("zkr_queue_oldest_seconds", r.Queue.Oldest)
		}

		// The oldest of each kind tells what hangs now.
		var hold, line, wait int64
		for _, c := range r.Contenders {
			switch {
			case c.State == survey.Waits:
				wait = first(wait, c.Since)
			case c.State == survey.Holds:
				hold, line = first(hold, c.Held), first(line, c.Since)
			}
		}

		age("zkr_oldest_hold_seconds", hold)
		age("zkr_oldest_holder_line_seconds", line)
		age("zkr_oldest_wait_seconds", wait)
	}
	h.mu.Unlock()

	lines["zkr_up"] = []string{fmt.Sprintf("zkr_up %d\n", up)}
	lines["zkr_paths_unread"] = []string{fmt.Sprintf("zkr_paths_unread %d\n", unread)}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	for name, of := range lines {
		slices.Sort(of)
		fmt.Fprintf(w, "# TYPE %s gauge\n%s", name, strings.Join(of, ""))
	}
}

// first returns the earlier of two times (0 is no time).
func first(a, b int64) int64 {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}
