// Package lock provides exclusive locks: [Mutex], which is fair, and [Simple], which is cheap.
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
// Most callers want [Mutex.Do] instead: it calls a function with such a context. [Mutex.TryDo] does
// so if it need not wait. For a job that is to be done once, and not by each process in turn, see
// package once.
//
// [LockAll] holds several locks or none. [Mutex.Revoke] asks a holder to give a lock back, and
// [Mutex.Break] takes it away.
//
// # Guarantees
//
//   - At most one [Lease] of a lock has an Err of nil at any time. A holder that is cut off or
//     expired learns of it before the lock goes to the next contender. A holder whose node an
//     operator deletes learns of it within one message.
//   - A Mutex is granted in order of arrival, which is the order in which the ensemble created the
//     contenders' nodes. A release wakes one waiter.
//   - Tokens increase from holder to holder.
//   - A waiter whose node another client deletes goes to the end of the line. In the first
//     tenth of a second of its wait, before it watches its node, it may be granted the lock
//     instead, and learns of the loss as a holder does.
//   - A call whose ctx is done fails, and leaves no node behind, even if the lock was granted at
//     that moment.
//
// # Costs
//
// A Mutex without contention costs two round trips, one to lock and one to unlock. Locking takes
// one more if another contender has held the lock in between, and some more the first time. A
// contender that has to wait sends four requests when it joins the line, and one more if the wait
// lasts for a tenth of a second. Being granted the lock takes none: the next contender watches for
// a release marker, which the holder's release transaction creates and deletes. The marker proves
// that no contender is ahead. A contender that leaves without having held the lock leaves no
// marker, and the next one lists the line. Package protocol/line explains why this is sound.
//
// # Other libraries
//
// A Mutex shares its line with contenders of go-zookeeper's zk.Lock, of Apache Curator's
// InterProcessMutex, of kazoo's Lock(extra_lock_patterns=["-lock-"]) and of ZooKeeper's own
// WriteLock at the same path. Not all of these respect each other: docs/other-libraries.md has the
// pairs.
//
// # Other recipes at the path
//
// An election.Election at the path of a lock is that lock: candidates and contenders are in one
// line, and exclude each other. Contenders of packages rwlock, semaphore and once at the path wait
// for those of a lock that came before them, and the other way round. [Mutex.Contenders] shows
// them, too. Queues, barriers, double barriers and groups have no such contenders: they neither
// wait for a lock nor delay it.
//
// Contenders of Curator's InterProcessReadWriteLock do not wait for a lock. If one of them is found
// behind a contender that would be granted, the call returns [protocol.ErrMixed].
//
// # Failure
//
// A process may be paused between checking its lease and writing. When it resumes, it writes
// without the lock. Pass [Lease.Token] with each write to a resource that refuses older tokens. In
// a write to ZooKeeper, put [Lease.Check] first.
//
// A lease is not re-entrant and cannot be upgraded. A waiter whose session is lost joins again at
// the end of the line.
package lock
