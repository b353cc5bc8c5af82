package queue

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
)

// An entry is one element of the queue, as a consumer knows it.
type entry struct {
	name     string
	sequence int32
	gone     bool // it was removed
	reserved bool // or was, when this consumer looked
	skips    int  // how often it was left to another consumer

	*reading             // nil unless it was read or is being read
	claim    string      // the name of the node that reserves it, if that is ours
	watch    *claimWatch // of the claim on an entry that is reserved
}

// available reports whether the entry may be taken, as far as this consumer knows.
func (e *entry) available() bool { return !e.gone && !e.reserved }

// A window is what a consumer knows of the queue's entries, in order, from its last listing. It
// begins with the first entry that is not known to be taken.
type window struct {
	entries  []*entry
	first    int      // those before are gone, or left to other consumers
	partial  bool     // some of them are left to others
	skipped  []*entry // those of them that no other consumer has taken, in order
	reserved []*entry // in no order
	size     int      // of the data that was read last
	ranking  ranking
}

// replace takes over a new listing of the same directory. What is known of entries that are still
// there is kept.
func (w *window) replace(entries []*entry) {
	known := make(map[string]*entry)
	for _, e := range slices.Concat(w.reserved, w.skipped, w.entries[w.first:]) {
		if !e.gone && (e.reserved || e.reading != nil) {
			known[e.name] = e
		}
	}

	w.reserved, w.skipped = nil, nil
	for i, e := range entries {
		old := known[e.name]
		if old == nil {
			continue
		}
		entries[i] = old
		if old.reserved {
			w.reserved = append(w.reserved, old)
		}
	}
	w.entries, w.first, w.partial = entries, 0, false
}

// pick returns the first n available entries.
func (w *window) pick(n int) (next []*entry) {
	skipped := w.availableSkipped()
	next = append(next, skipped[:min(n, len(skipped))]...)

	for w.first < len(w.entries) && w.entries[w.first].gone {
		w.entries[w.first] = nil
		w.first++
	}

	for _, e := range w.entries[w.first:] {
		if len(next) == n {
			break
		}
		if e.available() {
			next = append(next, e)
		}
	}
	return next
}

// availableSkipped returns the skipped entries that are available.
func (w *window) availableSkipped() []*entry {
	w.skipped = slices.DeleteFunc(w.skipped, func(e *entry) bool { return !e.available() })
	return slices.Clone(w.skipped)
}

// index returns where the entry with that number is, or would be.
func (w *window) index(sequence int32) (i int, found bool) {
	i, found = slices.BinarySearchFunc(w.entries[w.first:], sequence, func(e *entry, sequence int32) int {
		return cmp.Compare(e.sequence-sequence, 0)
	})
	return w.first + i, found
}

// skipTo leaves the entries before that number to others.
func (w *window) skipTo(sequence int32) {
	w.first, _ = w.index(sequence) // there need not be one with just that number
	w.partial = true
}

// addSkipped adds an entry that was left to others but is still there.
func (w *window) addSkipped(e *entry) {
	if _, found := w.index(e.sequence); !found && e.available() && !slices.Contains(w.skipped, e) {
		w.skipped = append(w.skipped, e)
		slices.SortFunc(w.skipped, compare)
	}
}

// forgetData makes sure that entries are read again: other consumers were faster than expected.
func forgetData(entries []*entry) {
	for _, e := range entries {
		e.reading = nil
	}
}

// A ranking keeps consumers that race from all trying to remove the same entry, where they draw no
// tickets. Of the first entries, as many as there are consumers, each takes the one of its own
// rank. So fewer entries are left before that one than there are consumers.
type ranking struct {
	rank      int
	consumers int // 0 or 1 if there are no others
	alone     int // entries taken since the last collision
}

// maxSkips is how often an entry is left to another consumer.
const maxSkips = 4

// choose returns up to n of the entries, which were read a moment ago.
func (w *window) choose(entries []*entry, n int) []*entry {
	skip := max(0, min(w.ranking.rank, len(entries)-n))
	for _, e := range entries[:skip] {
		if e.skips++; e.skips > maxSkips {
			skip = 0
			break
		}
	}

	forgetData(entries[:skip])
	return entries[skip:min(skip+n, len(entries))]
}

// took ends the ranking when there was no collision for a while.
func (r *ranking) took(n int) {
	if r.alone += n; r.alone >= 16*r.consumers {
		*r = ranking{}
	}
}

// list lists the directory into the window.
func (c *consumer) list(life context.Context) error {
	if c.directory == nil {
		directory := c.session.Watch(c.queue.path)
		stat, err := directory.Ready(life)
		if errors.Is(err, zk.ErrNoNode) {
			return nil
		} else if err != nil {
			return err
		}
		c.directory, c.czxid = directory, stat.Czxid
	}

	children, err := protocol.Do(life, c.session, func(conn *zk.Conn) ([]string, error) {
		children, _, err := conn.Children(c.dir)
		if errors.Is(err, zk.ErrNoNode) {
			err = nil
		}
		return children, err
	})
	if err != nil {
		return err
	}

	c.window.replace(parseAll(children))
	c.listed = time.Now()
	c.skipBehindTicket()

	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.reserved)
	for _, e := range c.window.reserved {
		c.reserved[e.name] = true
	}
	return nil
}

// reset forgets all that is known of the directory.
func (c *consumer) reset() {
	c.window = window{size: c.window.size, ranking: c.window.ranking}
	c.tickets, c.directory = tickets{}, nil

	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.reserved)
	clear(c.freed)
}

// recheck resets the consumer if the directory is not the same any more. It returns reserved
// entries to their places that are known to be free, and, if it is time, all of them, to be read
// again.
func (c *consumer) recheck(life context.Context) error {
	if c.directory != nil {
		if same, err := c.directory.Same(life); err != nil {
			return err
		} else if !same {
			c.reset()
		}
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	all := time.Since(c.checked) >= c.recheckAfter()
	if all {
		c.checked = time.Now()
	}

	c.window.reserved = slices.DeleteFunc(c.window.reserved, func(e *entry) bool {
		acknowledged, freed := c.freed[e.name]
		if !all && !freed && !e.released() {
			return false
		}

		e.gone = acknowledged
		e.reserved, e.claim, e.watch, e.reading = false, "", nil, nil
		delete(c.reserved, e.name)
		c.window.addSkipped(e)
		return true
	})
	clear(c.freed)
	c.setClaimWatches()
	return nil
}

// recheckAfter is how long the consumer relies on watches, and on what others should have done.
func (c *consumer) recheckAfter() time.Duration { return c.session.Timeout() / 3 }

// foundReserved notes that an entry is reserved.
func (c *consumer) foundReserved(e *entry) {
	if len(c.window.reserved) == 0 {
		c.checked = time.Now()
	}
	if e.reserved {
		return
	}

	e.reserved, e.reading = true, nil
	c.window.reserved = append(c.window.reserved, e)

	c.mu.Lock()
	defer c.mu.Unlock()
	c.reserved[e.name] = true
}

// free notes that an entry that was reserved in this process is not so any more.
func (c *consumer) free(name string, acknowledged bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.freed[name] = acknowledged
	c.removals.Wake()
}
