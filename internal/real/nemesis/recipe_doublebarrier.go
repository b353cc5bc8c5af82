package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/zkrecipes/zkrecipes/doublebarrier"
	"github.com/zkrecipes/zkrecipes/protocol"
)

func doubleBarrierWork(w *worker) workload {
	b := doublebarrier.New(w.client, w.Path, w.Clients)
	return workload{step: func() error {
		o, e, err := acquire(w, "enter", b.Enter)
		if err != nil {
			return err
		}

		o.Value, o.Members = e.Node(), e.Members()
		w.hold(o, e, w.spell(), false)
		leaving, cancel := w.wait()
		defer cancel()
		leave := w.call("leave", o.Value)
		err = e.Leave(leaving)
		o.Over = w.now()
		w.tell(o)
		return ignoring(w.returns(leave, err, Failed), protocol.ErrLost)
	}}
}

// checkDoubleBarrier checks that all members of a round name the same members, that rounds don't
// overlap, and that no Leave returns while a member is inside.
func checkDoubleBarrier(r *Round, name string) error {
	// Which members have certainly left?
	left := make(map[string]*Op) // by member: its Leave has returned
	for _, o := range r.ops(name, "leave") {
		if o.Outcome == OK {
			left[o.Value] = o
		}
	}

	// All members of a round must name the same members.
	rounds := make(map[string]string) // by member
	var inside []*Op
	for _, o := range r.ops(name, "enter") {
		if o.Outcome != OK {
			continue
		}
		round := strings.Join(o.Members, " ")
		if len(o.Members) != r.Clients || !slices.Contains(o.Members, o.Value) {
			return fmt.Errorf("member %s is in a round with %s:\n  %v", o.Value, round, o)
		}
		for _, m := range o.Members {
			if other, ok := rounds[m]; ok && other != round {
				return fmt.Errorf("member %s is in two rounds: %s; %s", m, other, round)
			}
			rounds[m] = round
		}
		inside = append(inside, o)
	}

	// Rounds must not overlap, and no Leave may return too early.
	for _, a := range inside {
		for _, b := range inside {
			l := left[a.Value]
			switch {
			case a == b || !b.certain():
			case a.Value == b.Value:
				return fmt.Errorf("two members are %s:\n  %v\n  %v", a.Value, a, b)
			case rounds[a.Value] != rounds[b.Value]:
				if a.certain() && a.Begun <= b.Begun && b.Begun < a.Held {
					return fmt.Errorf("two rounds overlap:\n  %v\n  %v", a, b)
				}
			case l != nil && l.Return < b.Held:
				return fmt.Errorf("a member has learned that all have left while one was inside:\n  %v\n  %v", l, b)
			}
		}
	}

	return nil
}
