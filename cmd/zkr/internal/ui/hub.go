package ui

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/plain"
	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/survey"
	"github.com/zkrecipes/zkrecipes/protocol"
)

const (
	beat        = 2 * time.Second // the time between proofs that the server answers, if there is a browser
	still       = time.Second     // the time between looks at an unchanged tree (the rates of queues change)
	never       = 24 * time.Hour
	settle      = 20 * time.Millisecond
	maxRemoved  = 10_000 // the number of removed rows to remember
	lookTimeout = 30 * time.Second
)

// A Hub looks at a tree and keeps the result for all browsers. Its methods are safe for concurrent
// use.
type Hub struct {
	config Config
	view   view
	boot   string        // differs for each hub
	key    string        // a deed must have it
	woken  chan struct{} // a value (at most one fits) means: look now

	mu       sync.Mutex
	changed  chan struct{} // closed when version grows
	version  int64
	ready    bool // the tree was read at least once
	rows     map[string]*row
	removed  []removal
	timeline timeline
	status   status
	browsers int

	// The following fields belong to Run.
	looked time.Time
	failed bool // the last look failed, so watches can be missing
	places map[string]*survey.Place
	unread map[string]bool // the places that the last look did not read
	flows  map[string]*flow
	rounds map[string][]string // the members of the last round of a double barrier, by path
}

// A removal is a row that has gone.
type removal struct {
	id      string
	version int64
}

// status says whether the page shows the present state.
type status struct {
	Live  bool   `json:"live"`            // a server answers
	Since int64  `json:"since,omitempty"` // the last answer, if Live is false
	Error string `json:"error,omitempty"` // why a look failed although a server answers

	seen    time.Time // the last answer of a server
	version int64
}

// NewHub returns a hub that does nothing before [Hub.Run]. Give the client's state changes to
// [Hub.StateChanged].
func NewHub(c Config) *Hub {
	return &Hub{
		config: c, boot: rand.Text(), key: rand.Text(), woken: make(chan struct{}, 1), changed: make(chan struct{}),
		view: survey.NewViewer(c.Client, c.Path, survey.Limits{Contenders: c.Limit, Places: c.Nodes}),
		rows: make(map[string]*row), places: make(map[string]*survey.Place),
		flows: make(map[string]*flow), rounds: make(map[string][]string),
		status: status{Live: true, seen: time.Now()},
	}
}

// Run looks until ctx ends or the client is closed.
func (h *Hub) Run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { h.confirm(ctx) })
	defer wg.Wait()
	defer cancel()

	for now := true; ctx.Err() == nil; {
		watching := h.watched()
		before, began := h.view.Requests(), time.Now()
		if now || h.failed || h.view.Changed() || watching && began.Sub(h.looked) >= still {
			h.look(ctx, watching)
		}

		// Without a browser only the timeline needs looks.
		pause := h.config.Interval
		if !watching {
			pause = cmp.Or(h.config.Idle, never)
		}

		// Spread the cost of a look over the time until the next look.
		cost := time.Duration(h.view.Requests()-before) * time.Second / time.Duration(h.config.Rate)
		rest(ctx, cost-time.Since(began), nil)
		now = rest(ctx, pause-time.Since(began), h.woken)
	}
}

// rest waits for d or until ctx ends. It reports whether it was woken earlier.
func rest(ctx context.Context, d time.Duration, woken <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-woken:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

func (h *Hub) watched() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.browsers > 0
}

// look looks once and publishes changes.
func (h *Hub) look(ctx context.Context, watched bool) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	if h.view.Changed() {
		rest(ctx, settle, nil) // a transaction can cause several events
	}

	h.looked = time.Now()
	p, err := h.view.Look(ctx, watched)
	h.failed = err != nil
	switch {
	case err == nil:
		h.publish(p, time.Now())
	case ctx.Err() == nil && !errors.Is(err, context.DeadlineExceeded):
		h.setStatus(func(s *status) { s.Error = plain.Line(err.Error()) })
		rest(ctx, time.Second, nil)
	}
}

// publish makes the result of a look the present state.
func (h *Hub) publish(root *survey.Place, now time.Time) {
	places, unread := make(map[string]*survey.Place), make(map[string]bool)
	var rows []*row
	var events []event
	for p := range root.All() {
		places[p.Path] = p
		before := h.places[p.Path]
		if before != nil {
			h.sawGrants(before, p, now)
			events = append(events, happened(before, p, h.end(p.Path))...)
		} else if len(h.places) > 0 && !isUnknown(p.Path, h.places, h.unread) {
			events = append(events, happened(&survey.Place{Path: p.Path, Recipe: p.Recipe}, p, h.end(p.Path))...)
		}

		// Directories and values have no row, but notes about the root must show.
		if p.Recipe != survey.Directory && p.Recipe != survey.Value || p == root && len(p.Notes) > 0 {
			rows = append(rows, h.describe(p, now))
		}
	}

	// A path that the look did not find has gone, or was not read.
	for path, before := range h.places {
		switch {
		case places[path] != nil:
		case isUnknown(path, places, nil): // keep the old row, and make no event
			unread[path] = true
			if old := h.rows[id(path)]; old != nil {
				row := *old
				row.Unread = true
				rows = append(rows, &row)
			}
		default:
			nothing := &survey.Place{Path: path, Recipe: before.Recipe}
			events = append(events, happened(before, nothing, h.end(path))...)
			delete(h.flows, path)
			delete(h.rounds, path)
		}
	}

	for path := range unread {
		places[path] = h.places[path]
	}
	h.places, h.unread = places, unread

	h.mu.Lock()
	defer h.mu.Unlock()
	version := h.version + 1
	changed := len(events) > 0

	// Only rows with changes get the new version.
	there := make(map[string]bool, len(rows))
	for _, r := range rows {
		there[r.ID] = true
		r.json, _ = json.Marshal(r) //nolint:errchkjson // it has no value that JSON cannot hold
		if old := h.rows[r.ID]; old == nil || !bytes.Equal(old.json, r.json) {
			r.version, changed = version, true
			h.rows[r.ID] = r
		}
	}

	for id := range h.rows {
		if !there[id] {
			delete(h.rows, id)
			h.removed = append(h.removed, removal{id, version})
			changed = true
		}
	}

	if more := len(h.removed) - maxRemoved; more > 0 {
		h.removed = slices.Clone(h.removed[more:])
	}

	if h.status.Error != "" {
		h.status.Error, h.status.version, changed = "", version, true
	}

	if !changed && h.ready {
		return
	}

	h.ready = true
	h.timeline.add(now, version, events...)
	h.advance()
}

// isUnknown reports whether a look leaves the state of a path unknown. places has the places that
// the look found. unread has places that it did not read.
func isUnknown(at string, places map[string]*survey.Place, unread map[string]bool) bool {
	for at != "/" {
		// The nearest ancestor that was read decides.
		parent := path.Dir(at)
		if unread[parent] {
			return true
		} else if p := places[parent]; p != nil {
			return p.Misses(path.Base(at))
		}

		at = parent
	}
	return false
}

// sawGrants sets when contenders began to hold, if the look before saw them wait.
func (h *Hub) sawGrants(before, p *survey.Place, now time.Time) {
	for i := range p.Contenders {
		c, old := &p.Contenders[i], before.Find(p.Contenders[i].Node)
		switch {
		case c.State != survey.Holds || !c.Held.IsZero() || old == nil || old.Token != c.Token:
		case old.State == survey.Waits:
			c.Held = now
		default:
			c.Held = old.Held
		}
	}
}

// end returns a function that says how a contender of a path ended.
func (h *Hub) end(path string) func(node string) survey.End {
	return func(node string) survey.End { return h.view.Ended(strings.TrimSuffix(path, "/") + "/" + node) }
}

// describe returns the row of a place. It adds facts from earlier looks.
func (h *Hub) describe(p *survey.Place, now time.Time) *row {
	r := newRow(p)
	if p.Entries != nil {
		f := h.flows[p.Path]
		if f == nil {
			f = new(flow)
			h.flows[p.Path] = f
		}

		f.add(now, p.Entries)
		r.Queue.In, r.Queue.Out = f.rates()
	}

	if p.Recipe == survey.DoubleBarrier {
		h.roundOf(p, r)
	}
	return r
}

// roundOf adds the missing members of a double barrier (members of the round before that have not
// come yet).
func (h *Hub) roundOf(p *survey.Place, r *row) {
	var names []string
	for _, c := range r.Contenders {
		names = append(names, c.Name)
	}

	// Remember the round while it lasts, because its members leave one by one.
	if r.Holding > 0 {
		if len(names) >= len(h.rounds[p.Path]) || r.Holding == p.Permits {
			h.rounds[p.Path] = names
		}

		return
	}
	if p.Permits <= r.Waiting {
		return
	}

	r.Missing = &missing{Count: p.Permits - r.Waiting}
	for _, name := range h.rounds[p.Path] {
		if !slices.Contains(names, name) {
			r.Missing.Names = append(r.Missing.Names, name)
		}
	}
}

// advance publishes a new version. The caller holds mu.
func (h *Hub) advance() {
	h.version++
	close(h.changed)
	h.changed = make(chan struct{})
}

// confirm checks whether a server answers while there is a browser.
func (h *Hub) confirm(ctx context.Context) {
	for ctx.Err() == nil {
		rest(ctx, beat, nil)
		if !h.watched() {
			continue
		}

		// An answer that takes longer is no answer for a page that is live.
		limited, cancel := context.WithTimeout(ctx, beat)
		err := h.view.Confirm(limited)
		cancel()
		if ctx.Err() == nil {
			h.answered(err == nil)
		}
	}
}

// StateChanged handles a state change of the client. Pass it to [protocol.WithStateListener].
func (h *Hub) StateChanged(s protocol.State) {
	if s != protocol.Connected {
		h.answered(false)
		return
	}
	h.answered(true)
	h.wake()
}

// answered records whether a server answers.
func (h *Hub) answered(yes bool) {
	h.setStatus(func(s *status) {
		now := time.Now()
		if s.Live != yes {
			kind := reachable
			s.Since = 0
			if !yes {
				// Without a browser the hub has asked nothing for a while.
				if now.Sub(s.seen) > 3*beat {
					s.seen = now
				}
				kind, s.Since = unreachable, s.seen.UnixMilli()
			}
			s.Live = yes
			h.timeline.add(now, h.version+1, event{Kind: kind})
		}

		if yes {
			s.seen = now
		}
	})
}

// setStatus changes the status. It publishes a version if browsers can see the change.
func (h *Hub) setStatus(change func(*status)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	before := h.status
	change(&h.status)
	if before.Live != h.status.Live || before.Since != h.status.Since || before.Error != h.status.Error {
		h.status.version = h.version + 1
		h.advance()
	}
}

// wake ends the rest of Run.
func (h *Hub) wake() {
	select {
	case h.woken <- struct{}{}:
	default:
	}
}
