package sim

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Rounds is the history of something that n members enter together and leave together, round after
// round (a double barrier).
type Rounds struct {
	turns
	n      int
	visits []*Visit // one for each turn
}

// A Visit is the turn of a member of a round.
type Visit struct {
	*Turn
	members []string
	left    time.Time // when the member found out that all had left
}

// Rounds begins a history, which is checked in the end.
func (w *World) Rounds(what string, n int) *Rounds {
	r := &Rounds{turns: w.turns(what), n: n}
	w.Check(r.check)
	return r
}

// Enter notes that a call of c, made at called, has entered together with members. If g has a Node
// method, it returns the node of c among the members.
func (r *Rounds) Enter(c *Client, called time.Time, g Grant, members []string) *Visit {
	v := &Visit{Turn: r.begin(c, called, g, false), members: members}
	v.shared = true
	r.mu.Lock()
	defer r.mu.Unlock()
	r.visits = append(r.visits, v)
	return v
}

// Leave is [Turn.End]. If err is nil, all members have left.
func (v *Visit) Leave(err error) error {
	learned := err == nil
	err = v.End(err)
	if learned {
		v.left = v.over
	}
	return err
}

// check returns an error unless all members of a round name the same members, rounds don't overlap,
// and no Leave returned while a member was inside.
func (r *Rounds) check() error {
	// A visit that was ended by force counts only until then.
	for _, v := range r.visits {
		if err := r.excuse(v.Turn); err != nil {
			return err
		}
	}

	rounds := make(map[string]string) // by member
	for i, a := range r.visits {
		key := strings.Join(a.members, " ")
		if len(a.members) != r.n || a.node != "" && !slices.Contains(a.members, a.node) {
			return fmt.Errorf("%s: %s, as %s, is in a round with %s, which should have %d members", r.what, a, a.node, key, r.n)
		}
		// All members of a round must name the same members.
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
		return fmt.Errorf("%s: two members are %s: %s; %s", r.what, a.node, a, b)
	case together && (early(a, b) || early(b, a)):
		return fmt.Errorf("%s: a member has left before the other: %s, until %v; %s, until %v",
			r.what, a, a.left.Sub(r.world.began), b, b.left.Sub(r.world.began))
	case !together && a.certain() && b.certain() && !a.begun.After(b.held) && !b.begun.After(a.held):
		return fmt.Errorf("%s: two rounds overlap: %s; %s", r.what, a, b)
	}

	return nil
}

// early reports whether a's Leave returned while b was inside.
func early(a, b *Visit) bool { return !a.left.IsZero() && b.certain() && a.left.Before(b.held) }
