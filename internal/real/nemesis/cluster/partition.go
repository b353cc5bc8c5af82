package cluster

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/zkrecipes/zkrecipes/recipestest/ensemble/launch"
)

// A shape chooses a rule at random, and describes it.
type shape func(*injection) (rule, error)

// networkFaults are faults of the traffic between members, and between clients and members.
var networkFaults = map[string]func(*injection) error{
	"partition-leader":   imposed(cutLeader),
	"partition-halves":   imposed(cutHalves),
	"partition-one-way":  imposed(cutOneWay),
	"partition-bridge":   imposed(cutAllButBridge),
	"partition-ring":     imposed(cutRing),
	"partition-total":    imposed(cutAll),
	"partition-flapping": flapping(cutHalves),
	"members-half-frame": halved(halveMembers),
	"members-latency":    imposed(delayMembers),

	"clients-cut":          imposed(cutClients),
	"clients-one-way":      imposed(cutClientsOneWay),
	"clients-some-members": imposed(cutClientsFromSome),
	"clients-split":        imposed(splitBrain),
	"clients-half-frame":   halved(halveClients),
	"clients-latency":      imposed(delayClients),
	"clients-reset":        (*injection).resetClients,
}

// imposed applies a shape's rule as long as the fault lasts.
func imposed(s shape) func(*injection) error {
	return func(i *injection) error {
		rule, err := s(i)
		if err != nil {
			return err
		}
		remove := i.network.impose(rule)
		defer remove()
		i.hold()
		return nil
	}
}

// flapping applies a shape's rules one after the other, each for a moment, with pauses in between.
func flapping(s shape) func(*injection) error {
	return func(i *injection) error {
		return i.forAWhile(func() error {
			rule, err := s(i)
			if err != nil {
				return err
			}
			remove := i.network.impose(rule)
			i.sleep(i.between(100*time.Millisecond, 2*time.Second))
			remove()
			i.sleep(i.between(100*time.Millisecond, 2*time.Second))
			return nil
		})
	}
}

// halved applies the rule of a shape that halves. Then the other half arrives, or its connection is
// reset (so that the reader ends with half a frame).
func halved(s shape) func(*injection) error {
	return func(i *injection) error {
		rule, err := s(i)
		if err != nil {
			return err
		}
		reset := i.r.IntN(2) == 0
		remove := i.network.impose(rule)
		defer remove()
		i.hold()

		if reset {
			i.say("the rest is lost")
			i.network.reset(rule)
		}
		return nil
	}
}

// stalled is the rule that stalls the traffic in cut. With silent, new connections wait too.
// Otherwise they are reset.
func stalled(silent bool, cut func(from, to end) bool) rule {
	return func(from, to end) launch.Traffic {
		if !cut(from, to) {
			return launch.Traffic{}
		}
		return launch.Traffic{Stalled: true, Silent: silent}
	}
}

// betweenMembers cuts some traffic between members, by their numbers.
func betweenMembers(cut func(from, to int) bool) func(from, to end) bool {
	return func(from, to end) bool { return !from.client && !to.client && cut(from.n, to.n) }
}

// betweenClients cuts traffic (in both directions) between clients and members, by their numbers.
func betweenClients(cut func(client, member int) bool) func(from, to end) bool {
	return func(from, to end) bool {
		return from.client && cut(from.n, to.n) || to.client && cut(to.n, from.n)
	}
}

// A set has some members or clients, by their numbers.
type set map[int]bool

func (s set) list() []int { return slices.Sorted(maps.Keys(s)) }

func (i *injection) silent() bool { return i.r.IntN(2) == 0 }

// someMembers chooses n members.
func (i *injection) someMembers(n int) set {
	s := make(set)
	for _, at := range i.r.Perm(len(i.members))[:n] {
		s[i.members[at].id] = true
	}
	return s
}

// someClients chooses one client, or more, or all.
func (i *injection) someClients() set {
	s := make(set)
	if i.clients > 0 {
		for _, n := range i.r.Perm(i.clients)[:1+i.r.IntN(i.clients)] {
			s[n] = true
		}
	}
	return s
}

// keepHolders returns the clients that hold a lock, and makes them keep it.
func (i *injection) keepHolders() set {
	s := make(set)
	if clients := i.aimed(); clients != nil {
		holders := clients.Holders()
		for _, client := range holders {
			s[client] = true
		}
		clients.Keep(holders...)
	}
	return s
}

// aimed returns the clients, or nil if they aren't known.
func (i *injection) aimed() Clients {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.aim
}

func cutLeader(i *injection) (rule, error) {
	leader := i.leader()
	if leader == nil {
		return nil, errors.New("no member leads")
	}
	i.say("%v, the leader, is cut off from all other members", leader)
	return stalled(i.silent(), betweenMembers(func(from, to int) bool {
		return (from == leader.id) != (to == leader.id)
	})), nil
}

func cutHalves(i *injection) (rule, error) {
	side := i.someMembers(1 + i.r.IntN(i.minority()))
	i.say("members %v are cut off from all others", side.list())
	return stalled(i.silent(), betweenMembers(func(from, to int) bool { return side[from] != side[to] })), nil
}

func cutOneWay(i *injection) (rule, error) {
	side := i.someMembers(1 + i.r.IntN(len(i.members)-1))
	i.say("nothing arrives at other members that members %v send", side.list())
	return stalled(i.silent(), betweenMembers(func(from, to int) bool { return side[from] && !side[to] })), nil
}

// cutAllButBridge makes two halves that both reach one member.
func cutAllButBridge(i *injection) (rule, error) {
	order := i.r.Perm(len(i.members))
	bridge := i.members[order[0]].id
	side := make(set)
	for _, at := range order[1 : 1+len(order)/2] {
		side[i.members[at].id] = true
	}
	i.say("members %v reach the others through %d only", side.list(), bridge)
	return stalled(i.silent(), betweenMembers(func(from, to int) bool {
		return from != bridge && to != bridge && side[from] != side[to]
	})), nil
}

// cutRing lets each member reach a majority (including itself), and no two members the same
// majority.
func cutRing(i *injection) (rule, error) {
	n := len(i.members)
	place := make(map[int]int)
	for at, m := range i.r.Perm(n) {
		place[i.members[m].id] = at
	}
	i.say("each member hears the %d that come after it in a ring", n/2)
	return stalled(i.silent(), betweenMembers(func(from, to int) bool {
		return (place[from]-place[to]+n)%n > n/2
	})), nil
}

func cutAll(i *injection) (rule, error) {
	i.say("no member reaches another")
	return stalled(i.silent(), betweenMembers(func(from, to int) bool { return from != to })), nil
}

func halveMembers(i *injection) (rule, error) {
	side := i.someMembers(1 + i.r.IntN(len(i.members)-1))
	i.say("what members %v send to others stops in the middle", side.list())
	return func(from, to end) launch.Traffic {
		return launch.Traffic{Halved: !from.client && !to.client && side[from.n] && !side[to.n]}
	}, nil
}

func delayMembers(i *injection) (rule, error) {
	side, delay := i.someMembers(1+i.r.IntN(len(i.members))), i.between(10*time.Millisecond, 300*time.Millisecond)
	i.say("what members %v send to others takes %v to %v", side.list(), delay, 2*delay)
	if clients := i.aimed(); clients != nil && i.r.IntN(2) == 0 {
		clients.Hurry()
	}
	return func(from, to end) launch.Traffic {
		if from.client || to.client || !side[from.n] {
			return launch.Traffic{}
		}
		return launch.Traffic{Delay: delay, Jitter: delay}
	}, nil
}

func cutClients(i *injection) (rule, error) {
	cut := i.someClients()
	i.say("clients %v are cut off from all members", cut.list())
	return stalled(i.silent(), betweenClients(func(client, _ int) bool { return cut[client] })), nil
}

func cutClientsOneWay(i *injection) (rule, error) {
	cut, requests := i.someClients(), i.r.IntN(2) == 0
	if requests {
		i.say("nothing arrives at members that clients %v send", cut.list())
	} else {
		i.say("nothing arrives at clients %v", cut.list())
	}
	return stalled(true, func(from, to end) bool {
		return requests && from.client && cut[from.n] || !requests && to.client && cut[to.n]
	}), nil
}

// cutClientsFromSome leaves each client its own part of the members.
func cutClientsFromSome(i *injection) (rule, error) {
	cut := make(map[int]set)
	for client := range i.clients {
		cut[client] = i.someMembers(1 + i.r.IntN(len(i.members)-1))
		i.say("client %d is cut off from members %v", client, cut[client].list())
	}
	return stalled(i.silent(), betweenClients(func(client, member int) bool { return cut[client][member] })), nil
}

// splitBrain cuts the leader off (see cutOffWithHolders).
func splitBrain(i *injection) (rule, error) {
	leader := i.leader()
	if leader == nil {
		return nil, errors.New("no member leads")
	}
	return i.cutOffWithHolders(leader), nil
}

// cutOffWithHolders cuts the leader off from all other members. Clients that hold a lock (or some
// clients, if none does) reach only the leader. All other clients reach only the other members.
func (i *injection) cutOffWithHolders(leader *member) rule {
	with := i.keepHolders()
	if len(with) == 0 {
		with = i.someClients()
	}
	i.say("clients %v and %v, the leader, are cut off from all others", with.list(), leader)
	return stalled(i.silent(), func(from, to end) bool {
		side := func(e end) bool { return e.client && with[e.n] || !e.client && e.n == leader.id }
		return side(from) != side(to)
	})
}

func halveClients(i *injection) (rule, error) {
	side, requests := i.someClients(), i.r.IntN(2) == 0
	if requests {
		i.say("what clients %v send stops in the middle", side.list())
	} else {
		i.say("what clients %v are sent stops in the middle", side.list())
	}
	return func(from, to end) launch.Traffic {
		return launch.Traffic{Halved: requests && from.client && side[from.n] || !requests && to.client && side[to.n]}
	}, nil
}

func delayClients(i *injection) (rule, error) {
	side, delay := i.someClients(), i.between(10*time.Millisecond, 500*time.Millisecond)
	i.say("what clients %v send, and are sent, takes %v to %v", side.list(), delay, 2*delay)
	return func(from, to end) launch.Traffic {
		if from.client && side[from.n] || to.client && side[to.n] {
			return launch.Traffic{Delay: delay, Jitter: delay}
		}
		return launch.Traffic{}
	}, nil
}

// resetClients resets the connections of some clients, again and again.
func (i *injection) resetClients() error {
	side := i.someClients()
	i.say("the connections of clients %v are reset again and again", side.list())
	return i.forAWhile(func() error {
		for client := range side {
			i.Reset(client)
		}
		i.sleep(i.between(10*time.Millisecond, 2*time.Second))
		return nil
	})
}
