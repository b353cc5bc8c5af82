package main

// A moment is a point in a client's work.
type moment int

const (
	never   moment = iota
	atWork         // it has the lock, and hasn't checked yet whether it still has it
	looked         // it believes that it holds the lock, and is about to claim the store
	claimed        // it has claimed the store, and is about to write
)

// A fault is a fault of the first client of a round.
type fault struct {
	name string
	at   moment

	// The client is paused until the other client has been granted the lock and has written. While
	// it's paused, it does nothing, and its network is stopped.
	pause bool

	// The clocks of so many servers leap by more than the lease. The client goes on working.
	leap int

	// The client's network to the lock's servers is stopped from before the leap until the client
	// has written.
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

// meets reports whether the fault is possible for a kind of lock. (For ZooKeeper's sessions a
// minority of the clocks doesn't matter, because only the leader's clock counts.)
func (f fault) meets(k kind) bool { return f.leap == 0 || f.leap > redisServers/2 || k.minority }
