// Package semaphore lets a number of holders in at a time, across processes, in order of arrival.
//
//	s := semaphore.New(client, "/limits/exports", 10)
//	err := s.Do(ctx, func(ctx context.Context, p *semaphore.Permit) error {
//		return export(ctx) // ctx ends when the permit is lost
//	})
//
// # Guarantees
//
//   - At most n trusted holders at a time. A holder learns that it has lost its permit before
//     ZooKeeper can grant it to another.
//   - Permits are granted in order of arrival.
//   - A release wakes at most n waiters. A waiter costs its session's pings, and a watch on each of
//     the n nodes before it, which all waiters of a session share.
//   - All contenders at a path count on one number of permits: one that differs gets [ErrPermits].
//     [Semaphore.Resize] changes the number.
//
// # Failure
//
// A process that is stopped between looking at Err and acting on it acts late. Put [Permit.Check]
// in front of a transaction of ZooKeeper to make that harmless. [Permit.Token] does not help a
// resource as that of a lock does, because several hold at a time.
//
// The layout is not that of Apache Curator's or kazoo's semaphores: they do not exclude each other.
//
// Contenders of other recipes at the path are waited for, and wait for permits: package lock says
// which. [Semaphore.Contenders] does not show them. A call that another library's lock at the path
// would overlook returns [protocol.ErrMixed].
package semaphore
