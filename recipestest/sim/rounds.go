package sim

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Rounds is the history of something that n enter together, and leave together, round after round: a double barrier.
type Rounds struct {
	turns
	n      int
	visits []*Visit // one for each turn
}

// A Visit is the turn of a member of a round.
type Visit struct {
	*Turn
	members []string
	left    time.Time // when it was told that all have left
}

// Rounds begins a history, which is checked in the end.
func (w *World) Rounds(what string, n int) *Rounds {
	r := &Rounds{turns: turns{world: w, what: what}, n: n}
	w.Check(r.check)
	return r
}

// Enter notes that c has entered together with these members, by a call that was made at called. A
// Node method of g tells which of them it is.
func (r *Rounds) Enter(c *Client, called time.Time, g Grant, members []string) *Visit {
	v := &Visit{Turn: r.begin(c, called, g, false), members: members}
	v.shared = true
	r.mu.Lock()
	defer r.mu.Unlock()
	r.visits = append(r.visits, v)
	return v
}

// Leave is [Turn.End]; without an error the member was told that all have left.
func (v *Visit) Leave(err error) error {
	told := err == nil
	err = v.End(err)
	if told {
		v.left = v.over
	}
	return err
}

// check tells whether members of a round agree about who they are, rounds do not overlap, and nobody was told that all
// have left while one of them was inside.
func (r *Rounds) check() error {
	for _, v := range r.visits {
		if err := r.excuse(v.Turn); err != nil {
			return err
		}
	}
	rounds := make(map[string]string) // by member
	for i, a := range r.visits {
		key := strings.Join(a.members, " ")
		if len(a.members) != r.n || a.node != "" && !slices.Contains(a.members, a.node) {
			return fmt.Errorf("%s: %s, as %s, is in with %s, where %d should be", r.what, a, a.node, key, r.n)
		}
		for _, m := range a.members {
			if other, ok := rounds[m]; ok && other != key {
				return fmt.Errorf("%s: %s is in two rounds: %s; %s", r.what, m, other, key)
			}
			rounds[m] = key
		}
		for _, b := range r.visits[:i] {
			if err := r.compare(a, b); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *Rounds) compare(a, b *Visit) error {
	together := slices.Equal(a.members, b.members)
	switch {
	case together && a.node != "" && a.node == b.node:
		return fmt.Errorf("%s: two are %s: %s; %s", r.what, a.node, a, b)
	case together && (early(a, b) || early(b, a)):
		return fmt.Errorf("%s: one has left before the other: %s, until %v; %s, until %v", r.what, a, a.left.Sub(r.world.began), b, b.left.Sub(r.world.began))
	case !together && a.certain() && b.certain() && !a.begun.After(b.held) && !b.begun.After(a.held):
		return fmt.Errorf("%s: two rounds overlap: %s; %s", r.what, a, b)
	}
	return nil
}

// early tells whether a was told that all have left while b was inside.
func early(a, b *Visit) bool { return !a.left.IsZero() && b.certain() && a.left.Before(b.held) }
