package sim

import (
	"context"
	"slices"
	"sync"
	"time"
)

// held knows what clients hold, and which faults wait for a holder. Its zero value is ready to use.
type held struct {
	mu       sync.Mutex // protects the fields below
	all      []*hold    // of turns and events
	expected bool       // there is a history with turns

	open  map[holdKey][]*hold // of the clients' events
	early map[holdKey]int     // how many ended before their EventAcquired

	ambushes []*ambush
}

// An ambush is a fault that waits for a client which will hold a lock for some time. An early
// ambush strikes soon after a client has acquired something (no event says for how long).
type ambush struct {
	long  time.Duration
	early bool
	met   chan *Client // has room for one
}

// hasHolders reports whether a history or an event says that clients hold something.
func (h *held) hasHolders() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.expected || len(h.all) > 0
}

// begin notes a hold.
func (h *held) begin(held *hold) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = append(h.all, held)
}

// keep notes that a turn is kept until then. If that is long enough for an ambush, it sets off the
// first one.
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

// end notes the end of a hold, unless it has ended.
func (h *held) end(held *hold, lost bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if held.to.IsZero() {
		held.to, held.lost = time.Now(), lost
	}
}

// of returns what a client holds (what all hold if c is nil).
func (h *held) of(c *Client) []*hold {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(h.all), func(held *hold) bool {
		return !held.to.IsZero() || c != nil && held.client != c
	})
}

// knows reports whether a client holds something with that token, by its events.
func (h *held) knows(c *Client, token int64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.ContainsFunc(h.all, func(held *hold) bool {
		return held.client == c && held.token == token && held.fromEvent()
	})
}

// await blocks until the ambush meets a client or ctx ends.
func (h *held) await(ctx context.Context, a *ambush, pick int) *Client {
	var now []*Client
	holds := h.of(nil) // which takes the lock itself
	h.mu.Lock()
	a.early = a.early || !h.expected
	for _, held := range holds {
		if a.early && held.fromEvent() || time.Until(held.until) >= a.long {
			now = append(now, held.client)
		}
	}
	// If a client already fits, there is nothing to wait for.
	if len(now) > 0 {
		h.mu.Unlock()
		return now[pick%len(now)]
	}

	// Otherwise the next client that fits sets it off.
	h.ambushes = append(h.ambushes, a)
	h.mu.Unlock()

	select {
	case c := <-a.met:
		return c
	case <-ctx.Done():
		return nil
	}
}

// Ambushes end after some session timeouts, because perhaps no client will hold anything any more.
const ambushLasts = 6

// ambush strikes a client that holds a lock for about as long as the fault lasts, soon after it
// began to. One ambush in four (or all, if there is no history) takes any hold that an event
// reports. Such a hold can be short (a few packets), so most of these ambushes don't wait long.
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
	// Whatever victim was drawn, this client is the victim now.
	f.Client = 1 + c.place.index
	w.begin(ctx, f)
	sleep(ctx, f.Lasts)
}
