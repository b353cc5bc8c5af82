package queue

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
)

// An entry is one element of the queue, as a consumer knows it.
type entry struct {
	name     string
	sequence int32
	gone     bool // somebody has removed it
	passed   int  // how often it was left to another consumer
	reserved bool // or was, when we looked

	*reading        // nil unless it was read or is being read
	claim    string // the name of the node that reserves it, if it is ours
	guard    *guard // on the claim of an entry that is reserved
}

// A guard tells when an entry is not reserved any more.
type guard struct {
	set   chan struct{} // closed once there is a watch, or an error
	sight *protocol.Watch
	err   error
}

// A reading is what an entry was when it was read.
type reading struct {
	done chan struct{}
	data []byte   // valid once done is closed
	stat *zk.Stat // likewise
	err  error    // likewise
}

// A head is what a consumer knows of the queue's entries, in order, from its last listing.
type head struct {
	entries []*entry
	first   int      // those before are gone, or somebody else's
	partial bool     // some of them are somebody else's
	overdue []*entry // those of them that nobody has taken, in order
	aside   []*entry // those that are reserved, in no order
	size    int      // of the data that was read last
	spread  spread
}

// replace takes over a new listing of the same directory, and keeps what is known of entries that are still there.
func (h *head) replace(entries []*entry) {
	known := make(map[string]*entry)
	for _, e := range slices.Concat(h.aside, h.overdue, h.entries[h.first:]) {
		if !e.gone && (e.reserved || e.reading != nil) {
			known[e.name] = e
		}
	}
	h.aside, h.overdue = nil, nil
	for i, e := range entries {
		old := known[e.name]
		if old == nil {
			continue
		}
		entries[i] = old
		if old.reserved {
			h.aside = append(h.aside, old)
		}
	}
	h.entries, h.first, h.partial = entries, 0, false
}

// pick returns the first n entries that are not known to be gone or reserved.
func (h *head) pick(n int) (next []*entry) {
	late := h.late()
	for h.first < len(h.entries) && h.entries[h.first].gone {
		h.entries[h.first] = nil
		h.first++
	}
	next = append(next, late[:min(n, len(late))]...)
	for _, e := range h.entries[h.first:] {
		if len(next) == n {
			break
		}
		if e.left() {
			next = append(next, e)
		}
	}
	return next
}

// late returns the entries that are overdue.
func (h *head) late() []*entry {
	h.overdue = slices.DeleteFunc(h.overdue, func(e *entry) bool { return !e.left() })
	return slices.Clone(h.overdue)
}

func (e *entry) left() bool { return !e.gone && !e.reserved }

// at is where the entry with that number is, or would be.
func (h *head) at(sequence int32) (i int, found bool) {
	i, found = slices.BinarySearchFunc(h.entries[h.first:], sequence, func(e *entry, sequence int32) int {
		return cmp.Compare(e.sequence-sequence, 0)
	})
	return h.first + i, found
}

// leaveTo leaves the entries before that number to others.
func (h *head) leaveTo(sequence int32) {
	h.first, _ = h.at(sequence) // there need not be one with just that number
	h.partial = true
}

// recall adds an entry that was left to others but is there.
func (h *head) recall(e *entry) {
	if _, found := h.at(e.sequence); !found && e.left() && !slices.Contains(h.overdue, e) {
		h.overdue = append(h.overdue, e)
		slices.SortFunc(h.overdue, compare)
	}
}

// doubt forgets the data that was fetched ahead: others have been faster than we thought.
func (h *head) doubt(entries []*entry) {
	for _, e := range entries {
		e.reading = nil
	}
}

// A spread keeps consumers that race from all trying to remove the same entry where they do not take numbers: each
// takes the one of the first few, of as many as there are consumers, that is its own by rank. So fewer are left before it.
type spread struct {
	rank      int
	consumers int // 1 or less: nobody is in the way
	calm      int // entries taken since somebody was
}

// patience is how often an entry is left to another consumer.
const patience = 4

// choose returns n of the entries that are there, which were read a moment ago.
func (h *head) choose(there []*entry, n int) []*entry {
	skip := max(0, min(h.spread.rank, len(there)-n))
	for _, e := range there[:skip] {
		if e.passed++; e.passed > patience {
			skip = 0
			break
		}
	}
	h.doubt(there[:skip])
	return there[skip:min(skip+n, len(there))]
}

// took lets the spread end when nobody has been in the way for a while.
func (s *spread) took(n int) {
	if s.calm += n; s.calm >= 16*s.consumers {
		*s = spread{}
	}
}

// fetch begins to read entries that were not read yet.
func (c *consumer) fetch(entries []*entry) {
	for _, e := range entries {
		if e.reading != nil {
			continue
		}
		r := &reading{done: make(chan struct{})}
		e.reading = r
		node := c.dir + "/" + e.name
		started := c.session.Go(func(life context.Context) {
			defer close(r.done)
			_, r.err = protocol.Do(life, c.session, func(conn *zk.Conn) (_ struct{}, err error) {
				r.data, r.stat, err = conn.Get(node)
				return struct{}{}, err
			})
		})
		if !started {
			r.err = protocol.ErrClosed
			close(r.done)
		}
	}
}

// await waits until entries were read, and returns those that can be taken. It stops reading where
// their data gets too much.
func (c *consumer) await(entries []*entry) (there []*entry, err error) {
	for i, bytes := 0, 0; i < len(entries) && bytes < takeBytes; i++ {
		c.fetch(entries[i:min(i+c.window(), len(entries))])
		e := entries[i]
		<-e.done
		switch {
		case errors.Is(e.err, zk.ErrNoNode):
			e.gone = true
		case e.err != nil:
			err := e.err
			c.head.doubt(entries)
			return nil, err
		case e.stat.NumChildren > 0:
			c.setAside(e)
		default:
			c.head.size = len(e.data)
			bytes += len(e.data)
			there = append(there, e)
		}
	}
	return there, nil
}
