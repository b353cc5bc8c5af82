package recipestest

import "slices"

// A counter counts packets by operation, and signals when a count is reached. Its zero value is
// ready to use.
type counter struct {
	counts   map[Op]int
	ordinary int // the sum over all operations that OpAny stands for
	signals  []signal
}

type signal struct {
	op      Op
	n       int
	reached chan struct{}
}

func (c *counter) add(op Op) {
	if c.counts == nil {
		c.counts = make(map[Op]int)
	}

	c.counts[op]++
	if op.ordinary() {
		c.ordinary++
	}

	c.signals = slices.DeleteFunc(c.signals, func(s signal) bool {
		if c.count(s.op) < s.n {
			return false
		}
		close(s.reached)
		return true
	})
}

func (c *counter) count(op Op) int {
	if op == OpAny {
		return c.ordinary
	}
	return c.counts[op]
}

// reached returns a channel that is closed once n packets of kind op were counted.
func (c *counter) reached(op Op, n int) <-chan struct{} {
	s := signal{op: op, n: n, reached: make(chan struct{})}
	if c.count(op) >= n {
		close(s.reached)
	} else {
		c.signals = append(c.signals, s)
	}
	return s.reached
}
