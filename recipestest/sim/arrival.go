package sim

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
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
	name   string
	enters [2]half // the node enters between these
	leaves [2]half
	turn   *Turn // nil if it was not granted
	missed bool  // it isn't in the listing after the last listing that had it
}

// lineVisits returns the visits that the listings show. The listings are in order.
func (e *Exclusive) lineVisits() map[string]*lineVisit {
	visits := make(map[string]*lineVisit)
	var last half // after the last listing without the nodes to come
	for _, l := range e.listings {
		for _, n := range l.nodes {
			v := visits[n]
			if v == nil {
				v = &lineVisit{name: n, enters: [2]half{last, e.before(l.to)}}
				visits[n] = v
			}
			v.leaves = [2]half{e.after(l.from), math.MaxInt64}
			v.missed = false
		}
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
	}

	var ops []porcupine.Operation
	add := func(what inLine, node int, from, to half) {
		ops = append(ops, porcupine.Operation{
			Input: lineStep{what, rune(node + 1)}, Call: from, Return: to, ClientId: len(ops),
		})
	}

	sorted := slices.SortedFunc(maps.Values(visits), func(a, b *lineVisit) int { return cmp.Compare(a.enters[1], b.enters[1]) })
	for i, v := range sorted {
		add(enters, i, v.enters[0], v.enters[1])
		if v.turn != nil {
			add(isGranted, i, v.enters[0], e.after(v.turn.begun))
		}
		add(leaves, i, v.leaves[0], max(v.leaves[0], v.leaves[1]))
	}

	if search(lineModel, ops) {
		return nil
	}
	return fmt.Errorf("%s is not granted in order of arrival: %s", e.what, e.overtaken(sorted))
}

// overtaken describes a visit that was certainly overtaken, if there is one.
func (e *Exclusive) overtaken(visits []*lineVisit) string {
	for _, a := range visits {
		for _, b := range visits {
			if b.turn != nil && a.enters[1] < b.enters[0] && a.leaves[0] > e.after(b.turn.begun) &&
				(a.turn == nil || a.turn.begun.After(b.turn.begun)) {
				return fmt.Sprintf("%s was in line when %s came, which has overtaken it: %s", a.name, b.name, b.turn)
			}
		}
	}
	return fmt.Sprintf("%d nodes were in line", len(visits))
}

// inLine is an event of a node in line.
type inLine int

const (
	enters inLine = iota
	isGranted
	leaves
)

type lineStep struct {
	what inLine
	node rune
}

// A lineState has the nodes in line in order. Each node is a rune.
type lineState struct {
	nodes string
	held  bool // the first node has the grant
}

var lineModel = porcupine.Model{
	Init: func() any { return lineState{} },
	Step: func(state, input, _ any) (bool, any) {
		line, step := state.(lineState), input.(lineStep)
		node := string(step.node)
		isFirst := strings.HasPrefix(line.nodes, node)
		switch step.what {
		case enters:
			return true, lineState{line.nodes + node, line.held}
		case isGranted:
			return isFirst && !line.held, lineState{line.nodes, true}
		}
		left := strings.Replace(line.nodes, node, "", 1)
		return left != line.nodes, lineState{left, line.held && !isFirst}
	},
}

// maxSteps is how many steps of a model a search may try.
const maxSteps = 50_000

// search reports whether there is an order of all operations, each within its time, that the model
// allows. After a number of steps it gives up and reports true, because a search can take longer
// than a test has (and in a bubble no timeout could end it).
func search(m porcupine.Model, ops []porcupine.Operation) bool {
	steps, step := 0, m.Step
	m.Step = func(state, input, output any) (bool, any) {
		if steps++; steps > maxSteps {
			return false, state
		}
		return step(state, input, output)
	}
	return porcupine.CheckOperations(m, ops) || steps > maxSteps
}
