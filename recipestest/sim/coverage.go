package sim

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// A coverage counts the hits of some schedules' faults.
type coverage struct {
	kinds   map[Kind]*tally
	holders bool // some client held something, or there was a history of that
	runs    int
	vacuous int // how many runs hit no holder
}

// A tally counts the faults of one kind.
type tally struct{ drawn, struck, met, cost int }

// add adds the faults of a world that has ended.
func (c *coverage) add(w *World) {
	if c.kinds == nil {
		c.kinds = make(map[Kind]*tally)
	}
	of := func(k Kind) *tally {
		if c.kinds[k] == nil {
			c.kinds[k] = &tally{}
		}
		return c.kinds[k]
	}

	c.holders = c.holders || w.held.hasHolders()
	c.runs++
	if !slices.ContainsFunc(w.strikes, strike.met) {
		c.vacuous++
	}
	for _, k := range w.drawn {
		of(k).drawn++
	}

	for _, s := range w.strikes {
		t := of(s.kind)
		t.struck++
		if s.met() {
			t.met++
		}
		if s.cost() {
			t.cost++
		}
	}
}

// isVacuous reports whether no run hit a holder, although the simulation is about locks and faults
// were drawn. (A few runs can be vacuous by chance.)
func (c *coverage) isVacuous() bool {
	return c.holders && len(c.kinds) > 0 && c.runs >= shortSeeds && c.vacuous == c.runs
}

// String returns a line for each kind of fault.
func (c *coverage) String() string {
	var b strings.Builder
	if c.holders && c.vacuous > 0 {
		fmt.Fprintf(&b, "\n%d of %d schedules met no holder: they are vacuous", c.vacuous, c.runs)
	}
	for _, k := range slices.Sorted(maps.Keys(c.kinds)) {
		t := c.kinds[k]
		fmt.Fprintf(&b, "\n%-24s %5d drawn  %5d struck  %5d met a holder  %5d cost a turn", k, t.drawn, t.struck, t.met, t.cost)
	}
	return b.String()
}
