package queue

import (
	"math/rand/v2"
	"slices"
	"time"
)

// A window is what is left of a consumer's latest listing, in order, and where the consumer goes on
// in it. Consumers of several sessions compete. One whose entries others were faster with goes
// further back in its listing and leaves what it skips to them until it lists the queue again. It
// goes forward again when it wins.
type window struct {
	entries  []found
	listed   time.Time
	took     time.Duration // for the listing
	skipped  bool          // some entries were left to others
	begins   bool          // nothing was taken yet
	next     time.Time     // when an entry that was left aside is tried again
	latest   int32         // the number of the last entry that was claimed here
	distance int           // how many entries are left to others between two blocks of ours
	lucky    int           // blocks in a row that were left to us
	unlucky  time.Time     // when others were faster
}

const (
	mostDistance = 16                     // times the entries of a block
	freshFor     = 100 * time.Millisecond // of a listing in which others compete, or with priorities
	staleAfter   = 250 * time.Millisecond // of any other listing, as entries may have come back
)

// fill takes over a listing, without the entries that are left aside.
func (w *window) fill(entries []found, took time.Duration, aside func(found) bool) {
	now := time.Now()
	w.listed, w.took, w.begins, w.skipped, w.next = now, took, true, false, time.Time{}
	w.entries = slices.DeleteFunc(entries, aside)
	if now.Sub(w.unlucky) > max(freshFor, 10*took) { // the others have become slow
		w.distance /= 4
	}
	if len(w.entries) == 0 || w.entries[0].Sequence < w.latest { // which was left, or has come back
		return
	}
	if w.distance > 0 { // the others list it, too
		w.drop(rand.IntN(min(w.distance, len(w.entries))))
	}
}

// drop leaves the first entries to others.
func (w *window) drop(n int) {
	w.entries, w.skipped = w.entries[n:], w.skipped || n > 0
}

// older reports whether the listing is old, compared with how long it takes.
func (w *window) older(than time.Duration) bool {
	return time.Since(w.listed) > max(than, 10*w.took) || !w.next.IsZero() && !time.Now().Before(w.next)
}

// take takes the next n entries. What it skips is left to others.
func (w *window) take(n int) []found {
	if n <= 0 {
		return nil
	}
	skip := w.distance
	if w.begins {
		skip, w.begins = 0, false
	}
	if len(w.entries) < skip+n {
		skip = rand.IntN(max(1, min(skip, len(w.entries)-n)+1))
	}
	w.drop(min(skip, len(w.entries)))
	block := w.entries[:min(n, len(w.entries))]
	w.entries = w.entries[len(block):]
	return block
}

// lost notes that others were faster with some of n entries, and won that they were not.
func (w *window) lost(some, n int) {
	w.distance, w.lucky, w.skipped, w.unlucky = w.distance+some, 0, true, time.Now()
	if some == n {
		w.distance *= 2
	}
	w.distance = min(w.distance, mostDistance*n)
}

func (w *window) won(last found) {
	w.latest = last.Sequence
	if w.lucky++; w.lucky >= 8 {
		w.distance, w.lucky = w.distance*3/4, 0
	}
}
