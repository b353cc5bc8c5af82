// Package rwlock has a shared lock, [RWMutex]: any number may read at the same time, and who writes is alone.
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
// or, which is most often what is wanted, [RWMutex.RDo] and [RWMutex.Do] around a function that gets such a context.
//
// # Guarantees
//
//   - While a write [Lease] has an Err of nil, no other lease of the lock has: a holder that is cut off, expired or
//     broken knows of it before the next one gets the lock. (Broken by an operator it is told within one message.)
//   - The lock is granted in order of arrival, which is the order in which the ensemble created the contenders'
//     nodes: readers that come together hold it together, and who comes after a writer waits for that writer. So
//     neither kind starves the other.
//   - A reader waits for the nearest writer before it and for nobody else: readers behind several writers are woken
//     once, and a writer that gives up lets those behind it in at once. A writer waits for the node just before it;
//     readers that leave in another order than they came in may wake it more than once, but never anybody else.
//   - Tokens increase from each holder to all later ones that it had to exclude. Readers that hold the lock together
//     may have been granted it in any order.
//   - A waiter whose node is deleted by somebody goes to the end of the line; it never holds without one.
//   - A call whose ctx is done fails, and leaves no node behind, even if the lock was granted at that moment.
//   - [Lease.Downgrade] makes a reader of a writer with no moment in between at which another writer could hold.
//
// There is no way from reading to writing. Two readers that wanted it would wait for each other, so who has to write
// takes the write lock to begin with. A reader that calls [RWMutex.Lock] while it holds a lease of its own waits for
// itself, until its ctx ends; [RWMutex.TryLock] returns [ErrLocked].
//
// An RWMutex costs two round trips when nobody else is in line, one to lock and one to unlock, after a first time that
// costs a few more. A reader among readers costs four, two of them at the same time. A waiter costs one or two more when it
// comes, and none when it is woken by a writer that unlocks: see package lock. Woken by anybody else it lists the line.
//
// # Other libraries
//
// A lock may be shared with Apache Curator's InterProcessReadWriteLock, or else with kazoo's ReadLock and WriteLock.
// We recognise their nodes at any time. They recognise ours only where these are spelt as theirs: every RWMutex
// at the path then needs [WithSpelling]. What cannot be helped is this:
//
//   - Curator and kazoo do not recognise each other, so they must not share a path.
//   - Curator's writers wait for every node whose name sorts before their number, whatever it is: besides its
//     contenders the path must have no children. Ours ignore strangers.
//   - Curator's readers watch the first writer before them rather than the nearest, and are woken by each that leaves.
//   - Up to version 5.4 (CURATOR-621) Curator gives a writer that goes on to read a new place at the end of the line.
//     Once it releases the write lock the next writer is let in, while it still reads.
//   - kazoo's readers wait for writers that came after them, too, and those wait for the readers: a kazoo reader
//     that has to wait, while a writer of any library comes behind it, may wait for ever (its issue 649; seen in
//     version 2.8). Exclusion is not harmed.
//   - kazoo's plain Lock at the same path excludes writers, and is excluded by them, but does not respect readers. The
//     locks of package lock belong elsewhere altogether.
//
// # Failure
//
// A process that is paused after it has looked at its lease, and writes when it runs again, writes without the lock. Pass
// [protocol.Grant.Token] along with what you write to whoever can refuse an older one, or, if you write to ZooKeeper,
// put [protocol.Grant.Check] in front. A lease is not re-entrant: a reader that asks for a second read lease waits
// behind the writers that have come since. Waiters that come back after their session was lost stand at the end of
// the line.
package rwlock
