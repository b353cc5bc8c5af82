// Package interop runs recipes of other languages beside ours, for tests and for the benchmark:
// Apache Curator's and ZooKeeper's own in Java, and kazoo's in Python.
//
// A peer is a process of its own. It has one session at first, and opens more where a command needs
// them. It reads commands from standard input and answers on standard output, one line each. The
// words of a line are separated by tabs:
//
//	ready COMMAND...                     at the beginning: all that it knows
//	CALL COMMAND HANDLE [ARGUMENT]...
//	CALL ok [RESULT]
//	CALL err TEXT
//
// A handle is a contender. The peer gives each handle a thread of its own, on which its commands
// run in order. So a lock that blocks delays no other handle, and a lock that belongs to a thread
// is released by the thread that took it.
//
//	lock HANDLE PATH        acquires an exclusive lock
//	trylock HANDLE PATH     the same without waiting: true or false
//	lockrevocable HANDLE PATH    the same, for a lock that gets revocations (Curator only)
//	awaitrevoked HANDLE          waits until it has (Curator only)
//	revoke HANDLE PATH NODE      asks for it (Curator only)
//	writelock HANDLE PATH   acquires ZooKeeper's own WriteLock, in a session of its own; PATH's
//	                        parent must exist (Curator only)
//	rlock HANDLE PATH       acquires a shared lock to read
//	wlock HANDLE PATH       acquires a shared lock to write
//	unlock HANDLE           releases what HANDLE acquired
//	offer HANDLE PATH DATA  puts data into a queue; for kazoo, a priority may follow
//	poll HANDLE PATH        takes the data at the head of a queue, or nothing; a handle of kazoo's
//	                        keeps its Queue object, which has a listing of its own
//	count HANDLE PATH N     counts a Counter up, N times (kazoo only)
//	latch HANDLE PATH ID    waits until a LeaderLatch with that ID leads (Curator only)
//	unlatch HANDLE          ends that
//	share HANDLE PATH       begins to follow a SharedValue (Curator only, as the three below)
//	shared HANDLE           the value as HANDLE sees it
//	trysetshared HANDLE DATA    replaces the value that HANDLE sees: true or false
//	unshare HANDLE          ends that
//	join HANDLE PATH NAME DATA  joins a group (DATA makes kazoo's group a ShallowParty)
//	leave HANDLE            leaves it
//	members HANDLE          the members that HANDLE sees: NAME=DATA of Curator, names of kazoo
//
// The benchmark has commands that repeat something for MS milliseconds, and measure it. Their
// result is the number of operations and the nanoseconds that these took, separated by a space:
//
//	lockloop HANDLE PATH SESSIONS MS        lock and unlock, in that many sessions at once
//	lockline HANDLE PATH N SESSIONS         take a lock while N-1 others begin to wait for it
//	electionline HANDLE PATH N SESSIONS     the same with candidates for an election
//	drain HANDLE                            release that line, one contender after the other
//	rwloop HANDLE PATH SESSIONS MS          lock and unlock a shared lock, one time in ten to write
//	                                        (Curator only)
//	offerloop HANDLE PATH THREADS MS        append to a queue
//	takeloop HANDLE PATH CONSUMERS MS       empty a queue, each consumer in a session of its own
//	doublebarrier HANDLE PATH MEMBERS MS N  enter and leave double barriers PATH/0 to PATH/N-1 in
//	                                        turn (Curator only)
//
// A new command is one entry in CuratorPeer.java and one in kazoo_peer.py. The Go side passes on
// all commands. When standard input ends, because [Peer.Close] was called or the whole process
// ended, the peer closes its sessions and ends, too.
package interop
