package cluster

import (
	"fmt"
	"strings"
	"sync"

	"github.com/zkrecipes/zkrecipes/recipestest/ensemble/reach"
)

// An end is an end of traffic: a member, or a client process.
type end struct {
	client bool
	n      int
}

// A wire is the link over which one end dials another. Traffic goes both ways.
type wire struct {
	dialler, target end
	link            *reach.Link
}

// A rule decides what happens to the traffic from one end to another.
type rule func(from, to end) reach.Traffic

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
	w := &wire{dialler: dialler, target: target, link: reach.NewLink()}
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
	// Functions can't be compared, so a rule's address is its key.
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
		if r(w.dialler, w.target) != (reach.Traffic{}) || r(w.target, w.dialler) != (reach.Traffic{}) {
			w.link.Reset()
		}
	}
}

// resetDiallers resets the connections with a member for the ends that dialled it. If they are
// stalled, the member doesn't notice.
func (n *network) resetDiallers(member end) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, w := range n.wires {
		if w.target == member && !w.dialler.client {
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
func (n *network) traffic(from, to end) reach.Traffic {
	var all reach.Traffic
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

// Links are the links of client processes to members, one for each pair.
type Links struct {
	mu      sync.Mutex // protects the fields below
	of      map[int][]*reach.Link
	strings map[int]string // the connect strings
}

// Open returns the connect string of a client, which has its link to each target. (add makes the
// link to a target by its index.) The same client always gets the same string.
func (l *Links) Open(client int, targets []string, add func(target int) *reach.Link) (string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if known, ok := l.strings[client]; ok {
		return known, nil
	}
	if l.of == nil {
		l.of, l.strings = make(map[int][]*reach.Link), make(map[int]string)
	}

	var addrs []string
	for i, target := range targets {
		link := add(i)
		l.of[client] = append(l.of[client], link)
		port, err := link.Listen(reach.Local(0), target)
		if err != nil {
			return "", fmt.Errorf("client %d: %w", client, err)
		}
		addrs = append(addrs, reach.Local(port))
	}
	l.strings[client] = strings.Join(addrs, ",")
	return l.strings[client], nil
}

// Of returns the links of a client.
func (l *Links) Of(client int) []*reach.Link {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.of[client]
}

// Reset resets the current connections of a client. Call it after the client's process was killed.
func (l *Links) Reset(client int) {
	for _, link := range l.Of(client) {
		link.Reset()
	}
}

// Close closes the links of all clients.
func (l *Links) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, links := range l.of {
		for _, link := range links {
			link.Close()
		}
	}
}
