// Package lock has exclusive locks: [Mutex], which is fair, and [Simple], which is cheap.
//
//	m := lock.New(client, "/locks/report")
//	lease, err := m.Lock(ctx)
//	if err != nil {
//		return err
//	}
//	defer lease.Unlock(context.WithoutCancel(ctx))
//	work, cancel := lease.Context(ctx) // cancelled if the lock is lost
//	defer cancel()
//
// or, which is most often what is wanted, [Mutex.Do] around a function that gets such a context.
//
// # Guarantees
//
//   - At most one [Lease] of a lock has an Err of nil at any time: a holder that is cut off, expired or broken knows of
//     it before the next one gets the lock. (Broken by an operator it is told within one message.)
//   - A Mutex is granted in order of arrival, which is the order in which the ensemble created the contenders'
//     nodes. A release wakes one waiter.
//   - Tokens increase from holder to holder.
//   - A waiter whose node is deleted by somebody goes to the end of the line; it never holds without one.
//   - A call whose ctx is done fails, and leaves no node behind, even if the lock was granted at that moment.
//
// A Mutex costs two round trips while nobody else uses it, one to lock and one to unlock; three if somebody else has
// had it in between; and some more the first time. A waiter costs five when it comes, two of them at the same time, and
// none when it is woken: a holder that leaves says, in the transaction that deletes its node, that nobody is ahead any
// more, by creating and deleting another node that the next in line watches for. Whoever else leaves does not, and then
// the line is listed. See package protocol for why that is sound.
//
// Contenders of go-zookeeper's zk.Lock, of Apache Curator's InterProcessMutex and of kazoo's
// Lock(extra_lock_patterns=["-lock-"]) at the same path stand in the same line as those of a Mutex. Curator and kazoo
// do not respect each other.
//
// # Failure
//
// A process that is paused after it has looked at its lease, and writes when it runs again, writes without the lock. Pass
// [protocol.Grant.Token] along with what you write to whoever can refuse an older one, or, if you write to ZooKeeper,
// put [protocol.Grant.Check] in front. A lease is not re-entrant and cannot be upgraded. Waiters that come back after
// their session was lost stand at the end of the line.
package lock
