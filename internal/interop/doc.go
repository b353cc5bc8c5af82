// Package interop runs recipes of other languages beside ours, for tests: Apache Curator's in Java
// and kazoo's in Python.
//
// A peer is a process of its own with a session of its own. It reads commands from standard input
// and answers on standard output, one line each. The words of a line are separated by tabs:
//
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
//	rlock HANDLE PATH       acquires a shared lock to read
//	wlock HANDLE PATH       acquires a shared lock to write
//	unlock HANDLE           releases what HANDLE acquired
//	offer HANDLE PATH DATA  puts data into a queue (Curator only)
//	poll HANDLE PATH        takes the data at the head of a queue, or nothing
//
// A new command is one entry in CuratorPeer.java and one in kazoo_peer.py. The Go side passes on
// all commands. When standard input ends, because the test or its whole process did, the peer
// closes its session and ends, too.
package interop
