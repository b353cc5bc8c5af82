// Package rwlock provides a shared lock, [RWMutex]: many readers hold it together, or one writer
// alone.
//
//	m := rwlock.New(client, "/locks/catalogue")
//	err := m.RDo(ctx, func(ctx context.Context, _ *rwlock.Lease) error { // or Do, to write
//		return read(ctx) // ctx ends if the lock is lost
//	})
//
// [RWMutex.RLock] and [RWMutex.Lock] are for work that does not fit into one function.
//
// # Guarantees
//
//   - While a write [Lease] has an Err of nil, no other lease of the lock has. A holder that is cut
//     off or expired finds out before the lock goes to the next contender. If an operator deletes
//     its node, it finds out when the server's event arrives.
//   - The lock is granted in order of arrival (the order in which the ensemble created the nodes).
//     Readers that come together hold it together. A contender behind a writer waits for that
//     writer. So neither readers nor writers starve.
//   - A reader waits only for the nearest writer before it. Readers behind several writers wake
//     once. A writer that gives up lets the readers behind it in at once.
//   - A writer waits for the node just before it. Readers that leave out of order can wake it more
//     than once.
//   - A holder's token is greater than the tokens of all earlier holders that it had to exclude.
//     Readers that hold the lock together may have been granted it in any order.
//   - A waiter whose node is deleted goes to the end of the line. (In the first tenth of a second
//     of its wait it may be granted the lock instead and finds out as a holder does.)
//   - A call whose ctx is done fails and leaves no node behind, even if the lock was granted at
//     that moment.
//   - [Lease.Downgrade] turns a writer into a reader, and no other writer can hold the lock in
//     between.
//
// A reader cannot become a writer: two readers that tried would wait for each other. Begin as a
// writer. A reader that calls [RWMutex.Lock] while it has a lease waits for itself until its ctx
// ends. [RWMutex.TryLock] returns [ErrLocked]. (An upgradable reader would need a node of a third
// kind. Other libraries would not wait for it.)
//
// # Costs
//
// Without contention: one round trip to lock and one to unlock, and a few more the first time. A
// reader among readers costs four round trips (two of them at the same time). A contender that must
// wait sends one or two requests more. A writer that unlocks lets the next contender in without a
// request (see package lock).
//
// If many goroutines of a process read, [WithLocalSharing] lets them hold one node together.
// Joining them costs no request.
//
// # Other libraries
//
// The lock can be shared with Apache Curator's InterProcessReadWriteLock or with kazoo's ReadLock
// and WriteLock, but not with both. We recognise their nodes. They recognise ours only if every
// RWMutex at the path spells its nodes their way: see [WithSpelling]. These limits remain:
//
//   - Curator's writers wait for every node whose name sorts before their number. So the path must
//     have no children but contenders. Our contenders ignore foreign nodes.
//   - Curator's readers watch the first writer before them rather than the nearest, and wake each
//     time that a writer leaves.
//   - Up to version 5.4 (CURATOR-621) a Curator writer that goes on to read gets a new place at the
//     end of the line. When it releases the write lock, the next writer gets in while it still
//     reads.
//   - kazoo's readers also wait for writers that came after them, and those writers wait for the
//     readers. So both can wait forever (kazoo's issue 649, seen in version 2.8). Exclusion is not
//     harmed.
//   - kazoo's plain Lock excludes writers and is excluded by them, but does not respect readers.
//
// # Locks at the path
//
// Readers and writers respect a mutex at the path (of package lock or election, Curator's
// InterProcessMutex, kazoo's Lock, zk.Lock or ZooKeeper's WriteLock). Contenders of packages lock,
// election, semaphore and once respect readers and writers in return. [RWMutex.Contenders] shows
// all of them as exclusive.
//
// Of other libraries, WriteLock respects only the spelling [Native]. zk.Lock respects the other two
// spellings and fails beside Native. Curator's InterProcessMutex respects none. If a call finds
// such a contender behind it, it returns [protocol.ErrMixed] instead of a lock that both might
// hold. The same holds beside a shared lock of Curator or kazoo in another spelling.
//
// # Failure
//
// A process can stop between a look at its lease and its next step and write a minute later without
// the lock. Write to ZooKeeper with [Lease.Multi]. Pass [Lease.Token] with each write to another
// store, and let the store refuse a token that is smaller than the greatest it has seen.
//
// A lease is not re-entrant: a reader that asks for a second read lease waits behind the writers
// that have come since.
package rwlock
