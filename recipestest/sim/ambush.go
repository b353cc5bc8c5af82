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
	turns    []*Turn    // begun, and not over
	ambushes []*ambush
	expected bool // there is a history of what clients hold
}

// An ambush is a fault that waits for a client which holds something for some time to come.
type ambush struct {
	long time.Duration
	met  chan *Client // has room for one
}

// expect notes that clients may hold something.
func (h *held) expect() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.expected = true
}

func (h *held) isExpected() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.expected
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
	for i, a := range h.ambushes {
		if time.Until(until) >= a.long {
			a.met <- t.client
			h.ambushes = slices.Delete(h.ambushes, i, i+1)
			return
		}
	}
}

// end notes that a turn is over.
func (h *held) end(t *Turn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.turns = slices.DeleteFunc(h.turns, func(other *Turn) bool { return other == t })
}

// endAll notes that all turns of a client are over.
func (h *held) endAll(c *Client) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.turns = slices.DeleteFunc(h.turns, func(t *Turn) bool { return t.client == c })
}

// of returns the turns of a client, or of all clients if c is nil.
func (h *held) of(c *Client) []*Turn {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(h.turns), func(t *Turn) bool { return c != nil && t.client != c })
}

// await blocks until a client keeps something for that long, or ctx ends.
func (h *held) await(ctx context.Context, long time.Duration, pick int) *Client {
	a := &ambush{long, make(chan *Client, 1)}
	h.mu.Lock()
	keeping := slices.DeleteFunc(slices.Clone(h.turns), func(t *Turn) bool { return time.Until(t.until) < long })
	if len(keeping) > 0 {
		h.mu.Unlock()
		return keeping[pick%len(keeping)].client
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
// began to.
func (w *World) ambush(ctx context.Context, f Fault) {
	ctx, cancel := context.WithTimeout(ctx, ambushLasts*w.Timeout)
	defer cancel()
	c := w.held.await(ctx, min(f.Lasts, w.Timeout*3/2), f.pick)
	if c == nil || !sleep(ctx, time.Duration(f.pick)*w.Timeout/8/(1<<20)) {
		return
	}
	f.Client = 1 + c.place.index
	w.begin(ctx, f)
	sleep(ctx, f.Lasts)
}
