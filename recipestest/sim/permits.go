package sim

import (
	"fmt"
	"slices"
	"time"
)

// Permits is the history of something that several clients can have at a time, up to a number.
type Permits struct{ turns }

// Permits begins a history, which is checked in the end. At most permits turns may be held at any
// moment.
func (w *World) Permits(what string, permits int) *Permits {
	w.numbers++
	p := &Permits{w.turns(what)}
	w.Check(func() error { return p.check(permits) })
	return p
}

// Begin is [Exclusive.Begin] for one of several.
func (p *Permits) Begin(c *Client, called time.Time, g Grant) *Turn {
	return p.begin(c, called, g, false)
}

// check looks for a moment at which certainly too many hold. If there is such a moment, there is
// one at which a turn begins.
func (p *Permits) check(permits int) error {
	all, err := p.final()
	if err != nil {
		return err
	}
	for _, t := range all {
		var holders []*Turn
		// Who certainly holds at the moment when t begins?
		for _, other := range all {
			if t.certain() && other.certain() && !other.begun.After(t.begun) && other.held.After(t.begun) {
				holders = append(holders, other)
			}
		}
		if len(holders) > permits {
			slices.SortFunc(holders, func(a, b *Turn) int { return a.begun.Compare(b.begun) })
			return fmt.Errorf("more than %d hold %s: %v", permits, p.what, holders)
		}
	}

	return nil
}
