// Package barrier has a barrier that some processes wait at until another one removes it.
//
//	b := barrier.New(client, "/barriers/migration")
//	if err := b.Set(ctx); err != nil {
//		return err
//	}
//	…
//	err := b.Remove(ctx) // and elsewhere:
//	err := b.Wait(ctx)
//
// The barrier is the node at its path, as in the ZooKeeper documentation, Apache Curator's DistributedBarrier and
// kazoo's Barrier; with those it can share a path. Set costs one round trip, or two if it is set, Remove four, Wait two and, however many
// wait, one event and one read for each client.
//
// # Guarantees
//
//   - [Barrier.Wait] returns nil only if the barrier was not set at some moment of the call. A removal that anybody
//     knows of when the call begins counts, whichever server is asked.
//   - After a removal everybody returns who was waiting, also if the barrier is set again at once, the connection was
//     cut at that moment, or the session is another one by now.
//   - A [Barrier.Remove] that has failed never removes a barrier that was set after that, not even one that was set
//     while the request was still on its way.
//   - A wait at an open barrier leaves no watch behind, and any number of waits that were given up leave one for each
//     client.
//
// # Failure
//
// A barrier stays when its setter dies, unless that has asked for [Ephemeral]. An ephemeral barrier whose setter has died
// stands until the server ends that session. A setter that is started again waits for that in Set, see [ErrEphemeral]. Wait says nothing about what happens
// afterwards: the barrier may be set again by the time that it returns. Remove of other libraries is not guarded
// against arriving late.
package barrier
