package sim

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// A coverage says what the faults of some schedules have met.
type coverage struct {
	kinds   map[Kind]*tally
	holders bool // there was a history of what clients hold
}

// A tally counts the faults of one kind.
type tally struct{ drawn, struck, met, cost int }

// A strike is a fault that has happened, with the turns that were under way.
type strike struct {
	kind  Kind
	turns []*Turn
}

// add adds the faults of a world that is over.
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

	c.holders = c.holders || w.held.isExpected()
	for _, k := range w.drawn {
		of(k).drawn++
	}
	for _, s := range w.strikes {
		t := of(s.kind)
		t.struck++
		if len(s.turns) > 0 {
			t.met++
		}
		if slices.ContainsFunc(s.turns, func(t *Turn) bool { return t.lost || s.kind == Death }) {
			t.cost++
		}
	}
}

// vacuous reports whether many faults have happened and none of them to a holder, although the
// simulation is about what clients hold.
func (c *coverage) vacuous() bool {
	struck, met := 0, 0
	for _, t := range c.kinds {
		struck += t.struck
		met += t.met
	}
	return c.holders && struck >= 100 && met == 0
}

// String returns a line for each kind of fault.
func (c *coverage) String() string {
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(c.kinds)) {
		t := c.kinds[k]
		fmt.Fprintf(&b, "\n%-24s %5d drawn  %5d struck  %5d met a holder  %5d cost a turn", k, t.drawn, t.struck, t.met, t.cost)
	}
	return b.String()
}
