package sim

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/zkrecipes/zkrecipes/protocol"
)

// A hold is a turn of a history, or something that a client holds by its own events (even if the
// simulation has no history of it).
type hold struct {
	client   *Client
	from, to time.Time // to is zero while the hold lasts
	lost     bool
	until    time.Time // a turn is kept until then

	path      string // of the event; a turn has none
	token     int64
	own       int64 // the token, if it belongs to the client's own node, otherwise 0
	session   int64
	exclusive bool
}

func (h *hold) fromEvent() bool { return h.path != "" }

// A holdKey tells a client's holds apart, as far as events allow. (A write lock that was downgraded
// keeps its token. Items that were reserved together have one token, and so have readers that share
// a node.)
type holdKey struct {
	client             *Client
	recipe, path, mode string
	token              int64
}

// exclusive reports whether no other client can have such a hold at the same time.
func (k holdKey) exclusive() bool {
	return k.recipe == "lock" || k.recipe == "election" || k.recipe == "rwlock" && k.mode == "write"
}

// observe notes the holds of the client. Events of a dead process don't count.
func (c *Client) observe(e protocol.Event) {
	if e.Token == 0 || c.Dead() {
		return
	}
	h, key := &c.world.held, holdKey{c, e.Recipe, e.Path, e.Mode, e.Token}
	h.mu.Lock()
	defer h.mu.Unlock()

	switch e.Kind {
	case protocol.EventAcquired:
		if h.early[key] > 0 { // its end came first
			h.early[key]--
			return
		}
		held := &hold{client: c, path: e.Path, token: e.Token, session: e.Session, from: e.Time, exclusive: key.exclusive()}
		if e.Recipe != "queue" && e.Recipe != "doublebarrier" { // other nodes have that token too
			held.own = e.Token
		}
		h.open[key] = append(h.open[key], held)
		h.all = append(h.all, held)
		h.spring(c, func(a *ambush) bool { return a.early })
	case protocol.EventReleased, protocol.EventLost:
		if len(h.open[key]) == 0 {
			// Events come from several goroutines, so an end can overtake its beginning.
			h.early[key]++
			return
		}
		// Holds with the same key look alike, so let the oldest end.
		held := h.open[key][0]
		h.open[key] = h.open[key][1:]
		held.to, held.lost = e.Time, e.Kind == protocol.EventLost
	}
}

// An observer passes on the events of a client.
type observer struct{ client *Client }

func (o observer) Observe(e protocol.Event) { o.client.observe(e) }

// checkHolds returns an error if two clients held the same exclusive path at once by their events,
// or if a client was late to notice a forced end.
func (w *World) checkHolds() error {
	w.held.mu.Lock()
	defer w.held.mu.Unlock()

	now := time.Now()
	var alone []*hold
	// Holders must notice forced ends in time. What comes after such an end doesn't count.
	for _, h := range w.held.all {
		if h.to.IsZero() {
			h.to = now
		}
		if !h.fromEvent() {
			continue
		}
		if h.exclusive {
			alone = append(alone, h)
		}
		ended := []any{bySession(h.session), byToken(h.own)}
		if err := w.late(h.client, ended, h.to, true); err != nil {
			return fmt.Errorf("%s: %s %w", h.path, h, err)
		}
		if at, ok := w.forced.begun.since(ended); ok && at.Before(h.to) {
			h.to = later(at, h.from)
		}
	}

	// Look for exclusive holds that overlap.
	slices.SortStableFunc(alone, func(a, b *hold) int {
		return cmp.Or(cmp.Compare(a.path, b.path), a.from.Compare(b.from))
	})
	for i, a := range alone {
		for _, b := range alone[i+1:] {
			// In this order, no later hold overlaps with a either.
			if b.path != a.path || !b.from.Before(a.to) {
				break
			}
			if a.client != b.client && b.from.Before(b.to) {
				return fmt.Errorf("%s has two holders, as their events say: %s; %s", a.path, a, b)
			}
		}
	}

	return nil
}

func (h *hold) String() string {
	since := func(at time.Time) float64 { return at.Sub(h.client.world.began).Seconds() }
	return fmt.Sprintf("%s with token %d from %.6fs to %.6fs", h.client.Name, h.token, since(h.from), since(h.to))
}
