package sim

import (
	"context"
	"slices"
	"sync"
	"time"
)

// held knows what clients hold, and which faults wait for a holder. Its zero value is ready for
// use.
type held struct {
	mu       sync.Mutex // protects what follows
	turns    []*Turn    // of the histories: begun, and not over
	expected bool       // there is such a history

	open  map[holdKey][]*hold // of the clients' events
	early map[holdKey]int     // how many have ended before their EventAcquired
	all   []*hold
	alone []*hold // those of all that are exclusive

	ambushes []*ambush
}

// An ambush is a fault that waits for a client which holds something for some time to come. An
// early one strikes soon after the client has acquired something, for how long no event says.
type ambush struct {
	long  time.Duration
	early bool
	met   chan *Client // has room for one
}

// expect notes that clients may hold something.
func (h *held) expect() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.expected = true
}

// hasHolders reports whether there is a history of what clients hold, or an event that says so.
func (h *held) hasHolders() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.expected || len(h.all) > 0
}

// begin notes a turn.
func (h *held) begin(t *Turn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.turns = append(h.turns, t)
}

// keep notes that a turn is kept until then, and sets off the first ambush that this is long enough
// for.
func (h *held) keep(t *Turn, until time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t.until = until
	h.spring(t.client, func(a *ambush) bool { return time.Until(until) >= a.long })
}

// spring sets off the first ambush that fits. mu is held.
func (h *held) spring(c *Client, fits func(*ambush) bool) {
	if i := slices.IndexFunc(h.ambushes, fits); i >= 0 {
		h.ambushes[i].met <- c
		h.ambushes = slices.Delete(h.ambushes, i, i+1)
	}
}

// end notes that a turn is over.
func (h *held) end(t *Turn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.turns = slices.DeleteFunc(h.turns, func(other *Turn) bool { return other == t })
}

// endAll notes that a client holds nothing from now on.
func (h *held) endAll(c *Client) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.turns = slices.DeleteFunc(h.turns, func(t *Turn) bool { return t.client == c })
	for _, held := range h.all {
		if held.client == c && held.to.IsZero() {
			held.to, held.lost = time.Now(), true
		}
	}
}

// of returns the turns and holds of a client, or of all clients if c is nil.
func (h *held) of(c *Client) (turns []*Turn, holds []*hold) {
	h.mu.Lock()
	defer h.mu.Unlock()
	turns = slices.DeleteFunc(slices.Clone(h.turns), func(t *Turn) bool { return c != nil && t.client != c })
	for _, held := range h.all {
		if held.to.IsZero() && (c == nil || held.client == c) {
			holds = append(holds, held)
		}
	}
	return turns, holds
}

// knows reports whether an event has said that a client holds something with that token.
func (h *held) knows(c *Client, token int64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.ContainsFunc(h.all, func(held *hold) bool { return held.client == c && held.token == token })
}

// await blocks until the ambush meets a client, or ctx ends.
func (h *held) await(ctx context.Context, a *ambush, pick int) *Client {
	var now []*Client
	_, holds := h.of(nil)
	h.mu.Lock()
	a.early = a.early || !h.expected
	for _, t := range h.turns {
		if time.Until(t.until) >= a.long {
			now = append(now, t.client)
		}
	}
	for _, held := range holds {
		if a.early {
			now = append(now, held.client)
		}
	}
	if len(now) > 0 {
		h.mu.Unlock()
		return now[pick%len(now)]
	}
	h.ambushes = append(h.ambushes, a)
	h.mu.Unlock()

	select {
	case c := <-a.met:
		return c
	case <-ctx.Done():
		return nil
	}
}

// Ambushes end after some session timeouts: no client may hold anything any more.
const ambushLasts = 6

// ambush strikes a client that holds something for about as long as the fault lasts, soon after it
// began to. One ambush in four takes any hold that an event tells of, and so do all if there is no
// history. Such a hold may last for a few packets alone, so most of these ambushes don't wait long.
func (w *World) ambush(ctx context.Context, f Fault) {
	ctx, cancel := context.WithTimeout(ctx, ambushLasts*w.Timeout)
	defer cancel()
	a := &ambush{long: min(f.Lasts, w.Timeout*3/2), early: f.pick%4 == 0, met: make(chan *Client, 1)}
	c := w.held.await(ctx, a, f.pick/4)
	wait := time.Duration(f.pick) * w.Timeout / 8 / (1 << 20)
	if a.early {
		wait >>= f.pick / 4 % 8
	}
	if c == nil || !sleep(ctx, wait) {
		return
	}
	f.Client = 1 + c.place.index
	w.begin(ctx, f)
	sleep(ctx, f.Lasts)
}
