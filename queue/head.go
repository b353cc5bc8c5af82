package queue

import (
	"context"
	"errors"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
)

// An entry is one element of the queue, as a consumer knows it.
type entry struct {
	name     string
	sequence int32
	gone     bool // somebody has removed it
	looks    int  // how often it was left to another consumer
	reserved bool // or was, when we looked
	misses   int  // how often it was so, but without a claim

	*reading        // nil unless it was read or is being read
	guard    *guard // on the claim of an entry that is reserved
}

// A guard tells when an entry is not reserved any more.
type guard struct {
	set   chan struct{} // closed once there is a watch, or an error
	sight *protocol.Sight
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
	first   int      // those before are gone
	aside   []*entry // those that are reserved, in no order
	size    int      // of the data that was read last
	spread  spread
}

// replace takes over a new listing of the same directory, and keeps what is known of entries that are still there.
func (h *head) replace(entries []*entry) {
	known := make(map[string]*entry)
	for _, e := range h.entries[h.first:] {
		if !e.gone && (e.reserved || e.reading != nil) {
			known[e.name] = e
		}
	}
	h.aside = nil
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
	h.entries, h.first = entries, 0
}

// pick returns the next entries to be taken, n at most: block by block, and within a block from our own place on.
func (h *head) pick(n int) (next []*entry) {
	for h.first < len(h.entries) && h.entries[h.first].gone {
		h.entries[h.first] = nil
		h.first++
	}
	for i := h.first; i < len(h.entries) && len(next) < n; {
		j, skipped := i, 0
		start := len(next)
		for ; j < len(h.entries) && h.spread.sameBlock(h.entries[i], h.entries[j]); j++ {
			switch e := h.entries[j]; {
			case e.gone || e.reserved:
			case h.spread.before(e):
				skipped++
				next = append(next, e)
			default:
				next = append(next, e)
			}
		}
		rotate(next[start:], skipped)
		i = j
	}
	return next[:min(n, len(next))]
}

// rotate moves the first n to the end.
func rotate(entries []*entry, n int) {
	if n > 0 && n < len(entries) {
		copy(entries, append(append([]*entry(nil), entries[n:]...), entries[:n]...))
	}
}

// doubt forgets the data that was fetched ahead: others have been faster than we thought.
func (h *head) doubt(entries []*entry) {
	for _, e := range entries {
		e.reading = nil
	}
}

// A spread keeps consumers that race from all trying to remove the same entry. Entries whose numbers differ in the last
// bits only make up a block, each consumer begins with another one, and none goes on to the next block while one
// of this block is left. So entries are overtaken by others of their block only. Blocks are no longer than there are
// consumers, and shrink while nobody is in the way.
type spread struct {
	bits   int   // of the numbers within a block
	offset int32 // where in a block we begin
	calm   int   // entries taken since somebody was in the way
}

func (s *spread) sameBlock(a, b *entry) bool { return a.sequence>>s.bits == b.sequence>>s.bits }

func (s *spread) before(e *entry) bool { return e.sequence&(1<<s.bits-1) < s.offset }

// collided widens the blocks, for so many consumers of whom we are the one with this rank.
func (s *spread) collided(rank, consumers int) {
	s.calm = 0
	if 2<<s.bits <= consumers {
		s.bits++
	}
	for 1<<s.bits > max(consumers, 1) {
		s.bits--
	}
	s.offset = int32(rank & (1<<s.bits - 1))
}

// patience is how often an entry is looked at again, because another consumer is about to take it, before we do.
const patience = 2

// hesitate tells whether to look at the rest of a block once more rather than to take the entry in it that is next.
func (h *head) hesitate(next *entry) bool {
	s := &h.spread
	if s.bits == 0 || next.sequence&(1<<s.bits-1) == s.offset || next.looks >= patience {
		return false
	}
	for _, e := range h.pick(1 << s.bits) {
		if s.sameBlock(e, next) {
			e.looks++
			e.reading = nil
		}
	}
	return true
}

// took notes that entries were had. While others are about, they have taken something of the same block meanwhile.
func (h *head) took(entries []*entry) {
	if h.spread.bits > 0 {
		last := entries[len(entries)-1]
		for _, e := range h.pick(1 << h.spread.bits) {
			if h.spread.sameBlock(e, last) && e != last {
				e.reading = nil
			}
		}
	}
	h.spread.took(len(entries))
}

// took lets the blocks shrink again when nobody has been in the way for a while.
func (s *spread) took(n int) {
	s.calm += n
	if s.bits > 0 && s.calm >= 16<<s.bits {
		s.bits, s.calm = s.bits-1, 0
		s.offset &= 1<<s.bits - 1
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

// await waits until entries were read, and returns those that can be taken.
func (c *consumer) await(entries []*entry) (there []*entry, err error) {
	for _, e := range entries {
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
			there = append(there, e)
		}
	}
	return there, nil
}
