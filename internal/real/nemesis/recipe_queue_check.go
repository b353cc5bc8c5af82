package main

import (
	"fmt"
	"maps"
	"slices"
)

// An element is a queue's element in a history.
type element struct {
	offered, maybeOffered bool
	call, done            Stamp // of the offer
	out, maybeOut         int   // how often it was taken or acknowledged
	reserved              []*Op
}

// checkQueue checks that every offered element comes out exactly once. The queue is empty when a
// round begins and when it ends. If a process was killed, the outcome of its calls is unknown.
func checkQueue(r *Round, name string) error {
	elements := make(map[string]*element)
	of := func(value string) *element {
		if elements[value] == nil {
			elements[value] = &element{}
		}
		return elements[value]
	}

	killed := 0 // takes whose elements we don't know
	for _, o := range r.ops(name) {
		switch o.Kind {
		case "offer":
			for _, v := range o.Members {
				e := of(v)
				e.offered = o.Outcome == OK
				e.maybeOffered = o.Outcome != Failed
				e.call, e.done = o.Call, o.returned()
			}
		case "take", "drain":
			if o.Return == 0 {
				killed++
			}
			for _, v := range o.Members {
				of(v).goesOut(o.Outcome)
			}
		case "ack":
			of(o.Value).goesOut(o.Outcome)
		case "reserve":
			if o.Value != "" {
				of(o.Value).reserved = append(of(o.Value).reserved, o)
			}
		}
	}

	// Each element must come out once, unless a call's outcome is unknown.
	var missing []string
	for _, v := range slices.Sorted(maps.Keys(elements)) {
		e := elements[v]
		switch {
		case !e.maybeOffered && (e.out > 0 || len(e.reserved) > 0):
			return fmt.Errorf("element %s was not offered, and came out", v)
		case e.out > 1:
			return fmt.Errorf("element %s came out %d times", v, e.out)
		case e.offered && e.out+e.maybeOut == 0:
			missing = append(missing, v)
		}
		if err := alone(e.reserved, func(a, b *Op) bool { return true }); err != nil {
			return fmt.Errorf("element %s: %w", v, err)
		}
	}

	// A broken round's queue isn't drained, so elements can still be in it.
	drained := len(r.Broken) == 0
	if len(missing) > killed && drained {
		return fmt.Errorf("%d elements have vanished, and %d processes were killed while they took one: %v", len(missing), killed, missing)
	}

	return inOrder(r.ops(name, "drain"), elements)
}

func (e *element) goesOut(outcome Outcome) {
	switch outcome {
	case OK:
		e.out++
	case Unknown, "":
		e.maybeOut++
	}
}

// inOrder checks the order in which one session empties the queue. If an element's offer had
// returned before another element was offered, the first element must come first.
func inOrder(drained []*Op, elements map[string]*element) error {
	var latest string // the element, so far, that was offered last
	for _, o := range drained {
		for _, v := range o.Members {
			e := elements[v]
			if latest != "" && e.done < elements[latest].call {
				return fmt.Errorf("element %s came out before %s, which was offered later", latest, v)
			}
			if latest == "" || e.call > elements[latest].call {
				latest = v
			}
		}
	}

	return nil
}
