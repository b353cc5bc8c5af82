// Package lock provides exclusive locks: [Mutex], which is fair, and [Simple], which is cheap.
//
//	m := lock.New(client, "/locks/report")
//	err := m.Do(ctx, func(ctx context.Context, lease *lock.Lease) error {
//		return writeReport(ctx, lease.Token()) // ctx ends if the lock is lost
//	})
//
// [Mutex.TryDo] returns [ErrLocked] instead of waiting. [Mutex.Lock] and [Lease.Unlock] are for
// work that does not fit into one function. [LockAll] holds several locks or none. [Mutex.Revoke]
// asks a holder to give a lock back, and [Mutex.Break] takes it away. For a job that only one
// process should do (rather than each in turn) see package once.
//
// # Guarantees
//
//   - At most one [Lease] of a lock has an Err of nil at any time. A holder that is cut off or
//     expired finds out before the lock goes to the next contender. If an operator deletes its
//     node, it finds out when the server's event arrives.
//   - A Mutex is granted in order of arrival (the order in which the ensemble created the nodes). A
//     release wakes one waiter.
//   - Tokens increase from holder to holder. Holders of a Mutex [WithLinger] may share a token.
//   - A waiter whose node is deleted goes to the end of the line. (In the first tenth of a second
//     of its wait it may be granted the lock instead and finds out as a holder does.)
//   - A call whose ctx is done fails and leaves no node behind, even if the lock was granted at
//     that moment.
//
// # Costs
//
// A Mutex without contention costs two round trips, one to lock and one to unlock. Locking takes
// another if a different contender has held the lock in between, and a few more the first time. A
// contender that must wait sends four requests when it joins the line, and a fifth if the wait
// lasts for a tenth of a second. Being granted the lock takes none: the next contender watches for
// a release marker, which the holder's release transaction creates and deletes, and which proves
// that no contender is ahead. (A contender that gives up leaves no marker, and the next lists the
// line. Package protocol/line explains why this is sound.)
//
// # Other libraries
//
// A Mutex shares its line with go-zookeeper's zk.Lock, Apache Curator's InterProcessMutex, kazoo's
// Lock(extra_lock_patterns=["-lock-"]) and ZooKeeper's own WriteLock. Not all of these respect each
// other: docs/migrating.md has the pairs.
//
// # Other recipes at the path
//
// An election.Election at the path of a lock is that lock: candidates and contenders are in one
// line and exclude each other. Contenders of packages rwlock, semaphore and once at the path wait
// for earlier contenders of the lock, and the other way round. [Mutex.Contenders] shows them, too.
// Queues, barriers, double barriers and groups neither wait for a lock nor delay it.
//
// Contenders of Curator's InterProcessReadWriteLock do not wait for a lock. If a call finds one
// behind it, it returns [protocol.ErrMixed].
//
// # Failure
//
// A process can stop between a look at its lease and its next step and write a minute later without
// the lock. Write to ZooKeeper with [Lease.Multi]. Pass [Lease.Token] with each write to another
// store, and let the store refuse a token that is smaller than the greatest it has seen.
//
// A lease is not re-entrant and cannot be upgraded. A waiter whose session is lost joins again at
// the end of the line.
package lock
