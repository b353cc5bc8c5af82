package cluster

import (
	"fmt"
	"sync"

	"github.com/zkrecipes/zkrecipes/recipestest/ensemble/launch"
)

// An end is an end of traffic: a member, or a client process.
type end struct {
	client bool
	n      int
}

// A wire is the link over which one end dials another. Traffic goes both ways.
type wire struct {
	dialler, target end
	link            *launch.Link
}

// A rule decides what happens to the traffic from one end to another.
type rule func(from, to end) launch.Traffic

// A network has all wires, and the rules of the current faults.
type network struct {
	mu    sync.Mutex // protects the fields below
	wires []*wire
	rules map[*rule]struct{}
}

// add makes a wire. The current rules apply to it.
func (n *network) add(dialler, target end) *wire {
	n.mu.Lock()
	defer n.mu.Unlock()
	w := &wire{dialler: dialler, target: target, link: launch.NewLink()}
	n.wires = append(n.wires, w)
	n.settle(w)
	return w
}

// impose adds a rule until remove is called.
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

// resetDiallers resets the connections with a member for the ends that dialled it. If they are
// stalled, the member doesn't notice.
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

// traffic combines all rules. n.mu is held.
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

// wireMembers makes the wire over which a member dials another. It listens on the other's ports, at
// the address that the dialling member's hosts file has for it.
func (c *Cluster) wireMembers(from, to *member) error {
	w := c.network.add(from.end(), to.end())
	for _, port := range []int{to.at.Quorum, to.at.Election} {
		if _, err := w.link.Listen(fmt.Sprintf("%s:%d", from.hostOf(to), port), launch.Local(port)); err != nil {
			return err // on systems other than Linux, 127.0.0.0/8 isn't complete
		}
	}
	return nil
}
