// Package barrier has a barrier: processes wait at it until another process removes it.
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
// Set costs one round trip (two if the barrier is set already), Remove four, and Wait two. A
// removal costs each client one event and one read, however many waiters it has. While a client
// waits, it sends its session's pings and nothing else.
//
// # Guarantees
//
//   - [Barrier.Wait] returns nil only if the barrier was open at some moment of the call. A removal
//     that any client knows about when the call begins counts, whichever server answers. (A deposed
//     leader that goes on answering is the exception: see [protocol.Session.Sync].)
//   - After a removal all waiters return. They do so even if the barrier is set again at once, the
//     connection breaks at that moment or the session has changed.
//   - A [Barrier.Remove] that failed never removes a barrier that was set later, not even while its
//     request is still on its way.
//   - A wait at an open barrier leaves no watch. Waits that were given up leave one watch for each
//     client, however many they were.
//
// # Failure
//
// A barrier outlives its setter unless it was made [WithEphemeral]. If the setter of an ephemeral
// barrier dies, the barrier stays until the server ends the setter's session. A setter that is
// started again waits for that in [Barrier.Set]: see [ErrEphemeral].
//
// If Set loses its session, it asks again in the next session. Its first request can still arrive
// until the servers have ended the lost session, and can set a barrier again that was removed
// meanwhile.
//
// Wait says nothing about later: the barrier can be set again by the time that Wait returns. A
// removal by another library can arrive late, and we can't prevent that.
package barrier
