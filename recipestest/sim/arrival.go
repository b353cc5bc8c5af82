package sim

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"
)

// Listed notes that a call, between from and to, has found these nodes in line. The history then
// also checks that nodes are granted in the order of their arrival: each node enters the line once,
// at its end; only the first node can be granted; any node can leave. The call must read committed
// state. Grants must have a Node method (see [Grant]).
func (e *Exclusive) Listed(from, to time.Time, nodes ...string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.listings = append(e.listings, listing{from, to, nodes})
}

// A listing has the nodes that were in line at one moment between from and to.
type listing struct {
	from, to time.Time
	nodes    []string
}

// A half is half of a moment: before a listing of the moment, or after it. With whole moments, we
// couldn't tell that a node in a listing comes before a node that isn't there yet.
type half = int64

func (e *Exclusive) before(at time.Time) half { return 2 * max(0, int64(at.Sub(e.world.began))) }
func (e *Exclusive) after(at time.Time) half  { return e.before(at) + 1 }

// A lineVisit is a node's time in line.
type lineVisit struct {
	name    string
	enters  [2]half // the node enters between these
	leaves  [2]half
	turn    *Turn // nil if it was not granted
	granted half  // when it was granted at the latest
	missed  bool  // it isn't in the listing after the last listing that had it
}

// lineVisits returns the visits that the listings show. The listings are in order.
func (e *Exclusive) lineVisits() map[string]*lineVisit {
	visits := make(map[string]*lineVisit)
	var last half // after the last listing without the nodes to come
	for _, l := range e.listings {
		for _, n := range l.nodes {
			v := visits[n]
			if v == nil {
				// It came after the last listing without it and before this listing was complete.
				v = &lineVisit{name: n, enters: [2]half{last, e.before(l.to)}}
				visits[n] = v
			}
			v.leaves = [2]half{e.after(l.from), math.MaxInt64}
			v.missed = false
		}
		// A node that isn't listed any more left before this listing was complete.
		for _, v := range visits {
			if !v.missed && !slices.Contains(l.nodes, v.name) {
				v.missed, v.leaves[1] = true, e.before(l.to)
			}
		}
		last = e.after(l.from)
	}

	return visits
}

// checkArrivals looks for an order of all arrivals, grants and ends, each within its time, that a
// line allows.
func (e *Exclusive) checkArrivals(all []*Turn) error {
	if len(e.listings) == 0 {
		return nil
	}

	visits := e.lineVisits()
	// Narrow the visits down by the turns.
	for _, t := range all {
		v := visits[t.node]
		if v == nil {
			v = &lineVisit{name: t.node, enters: [2]half{0, math.MaxInt64}, leaves: [2]half{0, e.after(t.over)}}
			visits[t.node] = v
		}
		if t.node == "" || v.turn != nil {
			return fmt.Errorf("%s cannot be compared with a line: %s is of node %q", e.what, t, t.node)
		}
		if _, ended := e.world.forced.begun.since(t.ended()); !ended { // a node can be deleted before it is granted
			v.turn = t
		}
		v.enters = [2]half{max(v.enters[0], e.before(t.called)), min(v.enters[1], e.after(t.begun))}
		v.leaves[0] = max(v.leaves[0], e.before(t.called), e.before(t.held))
		if v.enters[0] > v.enters[1] {
			return fmt.Errorf("%s is granted to a node that came later, %s: %s", e.what, t.node, t)
		}
	}

	var granted []*lineVisit
	for _, v := range visits {
		if v.turn != nil {
			v.granted = min(e.after(v.turn.begun), max(v.leaves[0], v.leaves[1]))
			granted = append(granted, v)
		}
	}

	slices.SortFunc(granted, func(a, b *lineVisit) int {
		return cmp.Or(cmp.Compare(a.granted, b.granted), cmp.Compare(a.name, b.name))
	})
	// A granted node is the first in line, so all nodes that leave after the grant have come later.
	// In the order of grants, each visit passes on its earliest arrival.
	for _, v := range granted {
		for _, other := range slices.Sorted(maps.Keys(visits)) {
			behind := visits[other]
			if behind == v || behind.leaves[0] <= v.granted {
				continue
			}
			behind.enters[0] = max(behind.enters[0], v.enters[0])
			bothFirst := behind.turn != nil && v.leaves[0] > behind.granted
			if behind.enters[0] > behind.enters[1] || bothFirst {
				return fmt.Errorf("%s is not granted in order of arrival: %s was in line when %s came, which has overtaken it: %s",
					e.what, behind.name, v.name, v.turn)
			}
		}
	}

	return nil
}
