// Package rwlock provides a shared lock, [RWMutex]: any number of readers hold it together, or one
// writer alone.
//
//	m := rwlock.New(client, "/locks/catalogue")
//	lease, err := m.RLock(ctx) // or Lock, to write
//	if err != nil {
//		return err
//	}
//	defer lease.Unlock(context.WithoutCancel(ctx))
//	work, cancel := lease.Context(ctx) // cancelled if the lock is lost
//	defer cancel()
//
// Most callers want [RWMutex.RDo] and [RWMutex.Do] instead: they call a function with such a
// context.
//
// # Guarantees
//
//   - While a write [Lease] has an Err of nil, no other lease of the lock has. A holder that is cut
//     off or expired learns of it before the lock goes to the next contender. A holder whose node
//     an operator deletes learns of it within one message.
//   - The lock is granted in order of arrival, which is the order in which the ensemble created the
//     contenders' nodes. Readers that come together hold it together, and a contender that comes
//     after a writer waits for that writer. So neither readers nor writers starve.
//   - A reader waits only for the nearest writer before it. Readers behind several writers are
//     woken once, and a writer that gives up lets the readers behind it in at once.
//   - A writer waits for the node just before it. Readers that leave in another order than they
//     came in may wake it more than once, but wake no other waiter.
//   - Tokens increase from each holder to all later ones that it had to exclude. Readers that hold
//     the lock together may have been granted it in any order.
//   - A waiter whose node another client deletes goes to the end of the line. In the first
//     tenth of a second of its wait, before it watches its node, it may be granted the lock
//     instead, and learns of the loss as a holder does.
//   - A call whose ctx is done fails, and leaves no node behind, even if the lock was granted at
//     that moment.
//   - [Lease.Downgrade] turns a writer into a reader, with no moment in between at which another
//     writer could hold.
//
// A reader cannot become a writer: two readers that wanted to would wait for each other. So a
// caller that has to write takes the write lock to begin with. A reader that calls [RWMutex.Lock]
// while it holds a lease of its own waits for itself, until its ctx ends; [RWMutex.TryLock] returns
// [ErrLocked].
//
// # Costs
//
// An RWMutex without contention costs two round trips, one to lock and one to unlock, and a few
// more the first time. A reader among readers costs four, two of them concurrent. A contender that
// has to wait sends one or two requests more. Being let in by a writer that unlocks takes none: see
// package lock. Woken by any other contender, a waiter lists the line.
//
// Where many goroutines of a process read, [WithLocalSharing] makes them hold one node together. A
// reader that joins the others then costs no request, to lock or to unlock.
//
// # Other libraries
//
// A lock may be shared either with Apache Curator's InterProcessReadWriteLock, or with kazoo's
// ReadLock and WriteLock. We always recognise their nodes. They recognise ours only if every
// RWMutex at the path spells them their way: see [WithSpelling]. These limits remain:
//
//   - Curator and kazoo do not recognise each other, so they must not share a path.
//   - Curator's writers wait for every node whose name sorts before their number, whatever it is.
//     The path must have no children but contenders. Ours ignore foreign nodes.
//   - Curator's readers watch the first writer before them rather than the nearest, and are woken
//     by each that leaves.
//   - Up to version 5.4 (CURATOR-621), Curator gives a writer that goes on to read a new place at
//     the end of the line. Once it releases the write lock, the next writer is let in while it
//     still reads.
//   - kazoo's readers wait for writers that came after them, too, and those writers wait for the
//     readers. If a kazoo reader has to wait and any writer comes behind it, both may wait for ever
//     (kazoo's issue 649; seen in version 2.8). Exclusion is not harmed.
//   - kazoo's plain Lock at the same path excludes writers, and is excluded by them, but does not
//     respect readers. Its nodes look like those of kazoo's WriteLock, which does.
//
// # Locks at the path
//
// Readers and writers alike respect a mutex at the path: one of package lock, a candidate of
// package election, Curator's InterProcessMutex, kazoo's Lock, zk.Lock and ZooKeeper's WriteLock.
// Contenders of packages lock, election, semaphore and once respect readers and writers in return,
// whatever the spelling. [RWMutex.Contenders] shows all of them as exclusive.
//
// Of other libraries, WriteLock respects the spelling [Native] alone. zk.Lock respects the other
// two, and fails beside Native. Curator's InterProcessMutex respects none. A call that would be
// granted, but has found a contender behind it that would not wait for it, returns
// [protocol.ErrMixed]: that one may hold. So do calls beside a shared lock of Curator or kazoo
// whose spelling is not theirs.
//
// # Failure
//
// A process may be paused between checking its lease and writing. When it resumes, it writes
// without the lock. Pass [Lease.Token] with each write to a resource that refuses older tokens. In
// a write to ZooKeeper, put [Lease.Check] first.
//
// A lease is not re-entrant: a reader that asks for a second read lease waits behind the writers
// that have come since. A waiter whose session is lost joins again at the end of the line.
package rwlock
