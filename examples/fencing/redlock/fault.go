package main

// A moment is where in its work a client is.
type moment int

const (
	never   moment = iota
	atWork         // it has the lock, and has not looked yet whether it still has it
	looked         // it believes that it holds the lock, and is about to claim the store
	claimed        // it has claimed the store, and is about to write
)

// A fault is what happens to the first client of a round.
type fault struct {
	name string
	at   moment

	// The client is paused until the other one has been granted the lock and has written. A client
	// that is paused does nothing, and its network is stopped.
	pause bool

	// The clocks of so many servers leap by more than the lease. The client goes on working.
	leap int

	// The client's network to the lock's servers is stopped before the leap, until it has written.
	cutOff bool
}

var faults = []fault{
	{name: "none"},
	{name: "paused before it looks", at: atWork, pause: true},
	{name: "paused before its first request", at: looked, pause: true},
	{name: "paused between its requests", at: claimed, pause: true},
	{name: "clocks of 2 of 5 servers leap", at: atWork, leap: 2},
	{name: "clocks of 3 of 5 servers leap", at: atWork, leap: 3},
	{name: "the same, and it is cut off", at: atWork, leap: 3, cutOff: true},
}

// meets reports whether the fault can happen to a kind of lock. A minority of the clocks has no
// part in ZooKeeper's sessions: the leader's clock alone counts.
func (f fault) meets(k kind) bool { return f.leap == 0 || f.leap > redisServers/2 || k.minority }
