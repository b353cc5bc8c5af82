// Package barrier has a barrier that processes wait at until another one removes it.
//
//	b := barrier.New(client, "/barriers/migration")
//	if err := b.Set(ctx); err != nil {
//		return err
//	}
//	…
//	err := b.Remove(ctx) // and elsewhere:
//	err := b.Wait(ctx)
//
// The barrier is the node at its path, as in the ZooKeeper documentation, Apache Curator's
// DistributedBarrier and kazoo's Barrier. It can share a path with those.
//
// Set costs one round trip, or two if the barrier is set already. Remove costs four, and Wait two.
// A removal costs each client with waiters one event and one read, however many waiters it has.
// While a client waits, it sends its session's pings and nothing else.
//
// # Guarantees
//
//   - [Barrier.Wait] returns nil only if the barrier was not set at some moment of the call. If a
//     removal is known to any client when the call begins, it counts, whichever server is asked.
//     The exception to both is a server whose leader was deposed and does not know it yet: it may
//     answer as of then; see [protocol.Session.Sync].
//   - After a removal all waiters return. That holds even if the barrier is set again at once, the
//     connection is cut at that moment, or the session is another one by now.
//   - A [Barrier.Remove] that has failed never removes a barrier that was set after that, not even
//     one that was set while the request was still on its way.
//   - A wait at an open barrier leaves no watch behind. Waits that were given up, of any number,
//     leave one for each client.
//
// # Failure
//
// A barrier outlives its setter unless it was made [WithEphemeral]. An ephemeral barrier whose
// setter has died stays until the server ends the setter's session. A setter that is started again
// waits for that in [Barrier.Set]; see [ErrEphemeral].
//
// A Set that loses its session asks again in the next one. Its first request may still arrive until
// the servers have ended the lost session. It then sets the barrier again, if that was removed
// meanwhile.
//
// Wait promises nothing about later: the barrier may be set again by the time that Wait returns. A
// removal by another library is not guarded against arriving late.
package barrier
