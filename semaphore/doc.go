// Package semaphore lets up to n holders in at a time (across processes) in order of arrival.
//
//	s := semaphore.New(client, "/limits/exports", 10)
//	err := s.Do(ctx, func(ctx context.Context, p *semaphore.Permit) error {
//		return export(ctx) // ctx ends if the permit is lost
//	})
//
// # Guarantees
//
//   - At most n trusted holders at a time. A holder finds out that it has lost its permit before
//     ZooKeeper can grant the permit to another contender.
//   - Permits are granted in order of arrival, and a release wakes at most n waiters. A waiter
//     costs its session's pings and n watches, which all waiters of a session share.
//   - The number of permits is the path's. The number that you give to [New] is only the first one:
//     a deployment with another number changes nothing until [Semaphore.Resize] does, for all
//     processes.
//
// A permit has no weight. If some jobs need more of a resource than others, give them a semaphore
// of their own. (A weight would have to be in the node's name, because waiters decide by names. An
// earlier version would count such a node once, and a heavy waiter would hold up the whole line.)
//
// # Failure
//
// A process can stop between a look at [Permit.Err] and its next step and act a minute later.
// Write with [Permit.Multi] if you write to ZooKeeper. [Permit.Token] cannot protect other stores,
// because several holders have valid tokens at a time.
//
// Apache Curator's and kazoo's semaphores have other layouts, and don't exclude ours. (Only the
// number has kazoo's form, so kazoo refuses a path with another number.)
//
// Contenders of other recipes at the path wait for permits, and we wait for them: see package lock.
// [Semaphore.Contenders] leaves them out. If a lock of another library at the path would not wait
// for us, the call returns [protocol.ErrMixed].
package semaphore
