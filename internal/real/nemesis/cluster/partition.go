package cluster

import (
	"fmt"
	"time"

	"github.com/zkrecipes/zkrecipes/recipestest/ensemble/reach"
)

// A shape chooses a rule at random, and describes it. It returns nil if it needs a leader and there
// is none.
type shape func(*injection) rule

// imposed applies a shape's rule as long as the fault lasts.
func imposed(s shape) func(*injection) error {
	return func(i *injection) error {
		rule := s(i)
		if rule == nil {
			return errNoLeader
		}
		remove := i.network.impose(rule)
		defer remove()
		i.hold()
		return nil
	}
}

// flapping applies a shape's rules one after the other, each for a moment and with pauses in
// between.
func flapping(s shape) func(*injection) error {
	return func(i *injection) error {
		return i.forAWhile(func() error {
			remove := i.network.impose(s(i))
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
		rule, reset := s(i), i.r.IntN(2) == 0
		remove := i.network.impose(rule)
		defer remove()
		i.hold()

		// The rule still applies, so the other half can't arrive before the reset.
		if reset {
			i.say("the rest is lost")
			i.network.reset(rule)
		}
		return nil
	}
}

// where is the rule that something happens to the traffic in cut.
func where(t reach.Traffic, cut func(from, to end) bool) rule {
	return func(from, to end) reach.Traffic {
		if cut(from, to) {
			return t
		}
		return reach.Traffic{}
	}
}

// stalled is the rule that stalls the traffic in cut. Half of the time, new connections wait too.
// Otherwise they are reset.
func stalled(i *injection, cut func(from, to end) bool) rule {
	return where(reach.Traffic{Stalled: true, Silent: i.r.IntN(2) == 0}, cut)
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

func cutLeader(i *injection) rule {
	leader := i.leader()
	if leader == nil {
		return nil
	}
	i.say("%v, the leader, is cut off from all other members", leader)
	return stalled(i, betweenMembers(func(from, to int) bool {
		return (from == leader.id) != (to == leader.id)
	}))
}

func cutHalves(i *injection) rule {
	side := i.someMembers(1 + i.r.IntN(i.minority()))
	i.say("members %v are cut off from all others", side.list())
	return stalled(i, betweenMembers(func(from, to int) bool { return side[from] != side[to] }))
}

func cutOneWay(i *injection) rule {
	side := i.someMembers(1 + i.r.IntN(len(i.members)-1))
	i.say("nothing arrives at other members that members %v send", side.list())
	return stalled(i, betweenMembers(func(from, to int) bool { return side[from] && !side[to] }))
}

// cutAllButBridge makes two halves that both reach one member.
func cutAllButBridge(i *injection) rule {
	order := i.r.Perm(len(i.members))
	bridge := i.members[order[0]].id
	side := make(set)
	for _, at := range order[1 : 1+len(order)/2] {
		side[i.members[at].id] = true
	}
	i.say("members %v reach the others through %d only", side.list(), bridge)
	return stalled(i, betweenMembers(func(from, to int) bool {
		return from != bridge && to != bridge && side[from] != side[to]
	}))
}

// cutRing lets each member reach a majority (including itself), and no two members the same
// majority.
func cutRing(i *injection) rule {
	n := len(i.members)
	place := make(map[int]int)
	for at, m := range i.r.Perm(n) {
		place[i.members[m].id] = at
	}
	i.say("each member hears the %d that come after it in a ring", n/2)
	return stalled(i, betweenMembers(func(from, to int) bool {
		return (place[from]-place[to]+n)%n > n/2
	}))
}

func cutAll(i *injection) rule {
	i.say("no member reaches another")
	return stalled(i, betweenMembers(func(from, to int) bool { return from != to }))
}

func halveMembers(i *injection) rule {
	side := i.someMembers(1 + i.r.IntN(len(i.members)-1))
	i.say("what members %v send to others stops in the middle", side.list())
	return where(reach.Traffic{Halved: true}, betweenMembers(func(from, to int) bool { return side[from] && !side[to] }))
}

func delayMembers(i *injection) rule {
	side, delay := i.someMembers(1+i.r.IntN(len(i.members))), i.between(10*time.Millisecond, 300*time.Millisecond)
	i.say("what members %v send to others takes %v to %v", side.list(), delay, 2*delay)
	// Latency matters most when locks change hands.
	if i.aim != nil && i.r.IntN(2) == 0 {
		i.aim.Hurry()
	}
	return where(reach.Traffic{Delay: delay, Jitter: delay}, betweenMembers(func(from, _ int) bool { return side[from] }))
}

func cutClients(i *injection) rule {
	cut := i.someClients()
	i.say("clients %v are cut off from all members", cut.list())
	return stalled(i, betweenClients(func(client, _ int) bool { return cut[client] }))
}

// oneWay chooses clients and a direction.
func oneWay(i *injection) (text string, cut func(from, to end) bool) {
	side := i.someClients()
	if i.r.IntN(2) == 0 {
		return fmt.Sprintf("to members from clients %v", side.list()), func(from, _ end) bool { return from.client && side[from.n] }
	}
	return fmt.Sprintf("to clients %v", side.list()), func(_, to end) bool { return to.client && side[to.n] }
}

func cutClientsOneWay(i *injection) rule {
	text, cut := oneWay(i)
	i.say("no bytes go %s", text)
	return where(reach.Traffic{Stalled: true, Silent: true}, cut)
}

// cutClientsFromSome leaves each client its own part of the members.
func cutClientsFromSome(i *injection) rule {
	cut := make(map[int]set)
	for client := range i.clients {
		cut[client] = i.someMembers(1 + i.r.IntN(len(i.members)-1))
		i.say("client %d is cut off from members %v", client, cut[client].list())
	}
	return stalled(i, betweenClients(func(client, member int) bool { return cut[client][member] }))
}

// splitBrain cuts the leader off (see cutOffWithHolders).
func splitBrain(i *injection) rule {
	leader := i.leader()
	if leader == nil {
		return nil
	}
	return cutOffWithHolders(i, leader)
}

// cutOffWithHolders cuts the leader off from all other members. Clients that hold a lock (or some
// clients, if none does) reach only the leader. All other clients reach only the other members.
func cutOffWithHolders(i *injection, leader *member) rule {
	with := i.keepHolders()
	if len(with) == 0 {
		with = i.someClients()
	}
	i.say("clients %v and %v, the leader, are cut off from all others", with.list(), leader)
	return stalled(i, func(from, to end) bool {
		side := func(e end) bool { return e.client && with[e.n] || !e.client && e.n == leader.id }
		return side(from) != side(to)
	})
}

func halveClients(i *injection) rule {
	text, cut := oneWay(i)
	i.say("bytes %s stop in the middle", text)
	return where(reach.Traffic{Halved: true}, cut)
}

func delayClients(i *injection) rule {
	side, delay := i.someClients(), i.between(10*time.Millisecond, 500*time.Millisecond)
	i.say("what clients %v send, and are sent, takes %v to %v", side.list(), delay, 2*delay)
	return where(reach.Traffic{Delay: delay, Jitter: delay}, betweenClients(func(client, _ int) bool { return side[client] }))
}

// resetClients resets the connections of some clients, again and again.
func resetClients(i *injection) error {
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
