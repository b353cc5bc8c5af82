package recipestest

import "slices"

// A tally counts packets by operation and tells who waits for a number of them.
type tally struct {
	counts   map[Op]int
	ordinary int // of all that OpAny stands for
	waiters  []waiter
}

type waiter struct {
	op      Op
	n       int
	reached chan struct{}
}

func (t *tally) add(op Op) {
	if t.counts == nil {
		t.counts = make(map[Op]int)
	}
	t.counts[op]++
	if op.ordinary() {
		t.ordinary++
	}
	t.waiters = slices.DeleteFunc(t.waiters, func(w waiter) bool {
		if t.count(w.op) < w.n {
			return false
		}
		close(w.reached)
		return true
	})
}

func (t *tally) count(op Op) int {
	if op == OpAny {
		return t.ordinary
	}
	return t.counts[op]
}

func (t *tally) reached(op Op, n int) <-chan struct{} {
	w := waiter{op: op, n: n, reached: make(chan struct{})}
	if t.count(op) >= n {
		close(w.reached)
	} else {
		t.waiters = append(t.waiters, w)
	}
	return w.reached
}
