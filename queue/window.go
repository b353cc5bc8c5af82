package queue

import (
	"cmp"
	"slices"
	"time"
)

// An entry is one element of the queue, as a consumer knows it.
type entry struct {
	name
	gone bool // it was removed
	left bool // another consumer has not taken it for long

	unfit  bool      // this consumer could not take it, and others have had their turn
	passed time.Time // when this consumer first began behind it; zero if it never did

	*reading           // nil unless it was read or is being read
	held     bool      // it was reserved when it was read, or is not to be delivered yet
	until    time.Time // when it is to be looked at again, if that is known
	refused  error     // why it could not be delivered
	claim    *claim    // by which this session has reserved it; nil if it has not
}

// available reports whether the entry may be taken, as far as this consumer knows.
func (e *entry) available() bool {
	return !e.gone && (!e.held || !e.until.IsZero() && !time.Now().Before(e.until))
}

// suits reports whether the entry may be reserved, or else removed. An ephemeral one, which a
// foreign client has made, can have no claim.
func (e *entry) suits(reserve bool) bool {
	if !reserve || e.reading == nil {
		return true
	}
	select {
	case <-e.done:
		return e.err != nil || e.stat.EphemeralOwner == 0
	default:
		return true
	}
}

// A window is what a consumer knows of the queue's entries, in order, from its last listing.
type window struct {
	entries []*entry
	first   int       // those before are gone
	held    []*entry  // in no order
	size    int       // of the data that was read last
	listed  time.Time // when the queue was listed
	reviews int       // so many were made
	stale   bool      // since then, others may have taken what this consumer is about to take
	beaten  bool      // another consumer was faster in the last transaction

	outdated bool // since then, entries of another priority may have been offered
	claims   bool // all pending requests are to reserve entries
}

// forget drops what was read. What is known of the consumers' turns is kept, so that an entry is
// not passed over for ever by consumers that forget all the time.
func (w *window) forget() {
	entries := w.entries[w.first:]
	*w = window{size: w.size, claims: w.claims}
	for _, e := range entries {
		if !e.gone {
			w.entries = append(w.entries, &entry{name: e.name, left: e.left, passed: e.passed})
		}
	}
}

// replace takes over a new listing. What is known of entries that are still there is kept. Those
// that are behind the others' tickets, and were so before, are left.
func (w *window) replace(names []name, behind func(sequence int32) bool) {
	known := make(map[string]*entry)
	for _, e := range w.entries[w.first:] {
		if !e.gone && (e.held || e.reading != nil || !e.passed.IsZero() || behind(e.sequence)) {
			known[e.node] = e
		}
	}

	w.entries, w.first, w.held = make([]*entry, len(names)), 0, nil
	now := time.Now()
	for i, n := range names {
		e := known[n.node]
		if e == nil {
			e = &entry{name: n}
		} else if e.available() && behind(e.sequence) {
			e.left = true
		}
		w.entries[i] = e
		if due := time.UnixMilli(n.due); !e.held && now.Before(due) {
			e.held, e.until = true, due
		}
		if e.held {
			w.held = append(w.held, e)
		}
	}
	w.listed, w.stale, w.outdated = now, false, false
}

// open reports whether an entry is available, and suits a pending request.
func (w *window) open(e *entry) bool { return e.available() && e.suits(w.claims) }

// pick returns the first n entries that are open.
func (w *window) pick(n int) (next []*entry) {
	for w.first < len(w.entries) && w.entries[w.first].gone {
		w.entries[w.first] = nil
		w.first++
	}
	for _, e := range w.entries[w.first:] {
		if len(next) == n {
			break
		}
		if w.open(e) {
			next = append(next, e)
		}
	}
	return next
}

// find returns the entry with that name, or nil.
func (w *window) find(n name) *entry {
	rest := w.entries[w.first:]
	i, found := slices.BinarySearchFunc(rest, n, func(e *entry, n name) int { return compareNames(e.name, n) })
	if !found || rest[i].node != n.node || rest[i].gone {
		return nil
	}
	return rest[i]
}

// index returns where the entry with that number is, or would be. It is for windows in the order of
// the numbers.
func (w *window) index(sequence int32) (i int, found bool) {
	i, found = slices.BinarySearchFunc(w.entries[w.first:], sequence, func(e *entry, sequence int32) int {
		return cmp.Compare(e.sequence-sequence, 0)
	})
	return w.first + i, found
}

// hold notes that an entry is not to be delivered, until it is released, or until then.
func (w *window) hold(e *entry, until time.Time, refused error) {
	if !e.held {
		w.held = append(w.held, e)
	}
	e.held, e.until, e.refused, e.reading, e.claim = true, until, refused, nil, nil
}

// dropGone forgets the entries that are held no more as they have gone, also by this session's own
// acknowledgements.
func (w *window) dropGone() {
	w.held = slices.DeleteFunc(w.held, func(e *entry) bool {
		e.gone = e.gone || e.claim != nil && e.claim.gone.Load()
		return e.gone
	})
}

// unhold takes an entry from those that are held.
func (w *window) unhold(e *entry) {
	e.held, e.until, e.refused = false, time.Time{}, nil
	w.held = slices.DeleteFunc(w.held, func(h *entry) bool { return h == e })
}

// nextDue returns when the first entry is due of those for which a time is known.
func (w *window) nextDue() (due time.Time) {
	for _, e := range w.held {
		if !e.until.IsZero() && (due.IsZero() || e.until.Before(due)) {
			due = e.until
		}
	}
	return due
}
