package cluster

import (
	"fmt"
	"sync"

	"github.com/zkrecipes/zkrecipes/recipestest/ensemble/launch"
)

// An end is a place between which traffic goes: a member, or a client process.
type end struct {
	client bool
	n      int
}

// A wire is the link through which one end dials another. Traffic goes both ways.
type wire struct {
	dialler, target end
	link            *launch.Link
}

// A rule says what becomes of the traffic from one end to another.
type rule func(from, to end) launch.Traffic

// A network is all wires, and the rules of the faults that there are now.
type network struct {
	mu    sync.Mutex // guards the fields below
	wires []*wire
	rules map[*rule]struct{}
}

// add makes a wire, to which the present rules apply.
func (n *network) add(dialler, target end) *wire {
	n.mu.Lock()
	defer n.mu.Unlock()
	w := &wire{dialler: dialler, target: target, link: launch.NewLink()}
	n.wires = append(n.wires, w)
	n.settle(w)
	return w
}

// impose applies a rule, beside all others, until remove is called.
func (n *network) impose(r rule) (remove func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.rules == nil {
		n.rules = make(map[*rule]struct{})
	}
	n.rules[&r] = struct{}{}
	n.settle(n.wires...)

	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.rules, &r)
		n.settle(n.wires...)
	}
}

// clear removes all rules.
func (n *network) clear() {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.rules)
	n.settle(n.wires...)
}

// reset resets the connections between ends to which a rule applies.
func (n *network) reset(r rule) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, w := range n.wires {
		if r(w.dialler, w.target) != (launch.Traffic{}) || r(w.target, w.dialler) != (launch.Traffic{}) {
			w.link.Reset()
		}
	}
}

// resetDiallers resets the connections with a member, for those that have dialled it. The member
// does not notice if they are stalled.
func (n *network) resetDiallers(target *member) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, w := range n.wires {
		if w.target == target.end() && !w.dialler.client {
			w.link.ResetDialling()
		}
	}
}

// settle applies all rules to some wires. n.mu is held.
func (n *network) settle(wires ...*wire) {
	for _, w := range wires {
		w.link.Set(n.traffic(w.dialler, w.target), n.traffic(w.target, w.dialler))
	}
}

// traffic is what all rules together say. n.mu is held.
func (n *network) traffic(from, to end) launch.Traffic {
	var all launch.Traffic
	for r := range n.rules {
		t := (*r)(from, to)
		all.Stalled = all.Stalled || t.Stalled
		all.Silent = all.Silent || t.Silent
		all.Halved = all.Halved || t.Halved
		all.Delay += t.Delay
		all.Jitter += t.Jitter
	}
	return all
}

func (n *network) close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, w := range n.wires {
		w.link.Close()
	}
}

// wireMembers makes the wire through which a member dials another. It listens on the ports of the
// other, at the address that the first one's hosts file has for it.
func (c *Cluster) wireMembers(from, to *member) error {
	w := c.network.add(from.end(), to.end())
	for _, port := range []int{to.at.Quorum, to.at.Election} {
		if _, err := w.link.Listen(fmt.Sprintf("%s:%d", from.hostOf(to), port), launch.Local(port)); err != nil {
			return err // on systems other than Linux, not all of 127.0.0.0/8 is there
		}
	}
	return nil
}
