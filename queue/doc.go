// Package queue has a distributed queue: any number of processes offer data at one end, and any number take it away at
// the other.
//
//	q := queue.New(client, "/queues/mail")
//	id, err := q.Offer(ctx, data)
//	…
//	data, err := q.Take(ctx) // at most once; or, at least once:
//	for item, err := range q.Items(ctx) {
//		if err != nil {
//			return err
//		}
//		if deliver(item.Data()) == nil {
//			err = item.Ack(ctx)
//		}
//		…
//	}
//
// # What it is good for, and what not
//
// ZooKeeper keeps all data in the memory of each server and has a quorum write every change to disk. So this queue is for
// tasks and commands: hundreds to a few thousands a second in all, of a few kilobytes each, by processes that use
// ZooKeeper anyway and want its guarantees. It is NOT a message broker. The limits, in numbers:
//
//   - An entry has at most a megabyte with its path ([protocol.MaxData]). It should have a thousandth of that.
//   - A queue should be short. It works with 100,000 entries, which take some 20 MB of every server's memory besides
//     their data; then a listing is an answer of 1.7 MB. A consumer takes one when it begins, and again when it has
//     used that up; [Queue.Len] and [Queue.Peek] take one each time. Tools whose clients limit the size of answers, as
//     Java's do by default to 1 MB, cannot list more than about 50,000 entries.
//   - One path takes 2,146,435,072 entries in its life, which is 24 days at 1,000 a second: numbers of entries have 31
//     bits, and servers repeat the last one. Offers then fail with [protocol.ErrSequenceExhausted], a million numbers
//     early, with nothing lost. The way out is another path; or drain the queue, delete its node while nobody
//     uses it, and go on. A queue that is a container, as those are that this package makes, is removed by the server
//     when it has been empty for a while, and begins at zero again by itself.
//   - There is one order, and so one leader through which everything goes. More consumers make the work behind the
//     queue faster, and the queue itself only as long as the network is what each of them waits for.
//
// # Layout
//
// An entry is the persistent node qn-<sequence> below the queue's path, as that of the Java DistributedQueue and of
// Curator's SimpleDistributedQueue, with which a path can be shared. Nodes with other names are left alone. Beside
// the queue, as siblings of its node, there are <path>-receipts and <path>-waiting: see below. An entry that is
// reserved has children; other libraries cannot remove it then, but do not know why and may complain, so mixed fleets
// should keep to [Queue.Take].
//
// # Guarantees
//
//   - Entries are taken in the order of their numbers, and those of one producer are offered in the order of its calls.
//     Where consumers of several sessions race each of them begins at another place in a block of entries with
//     adjacent numbers, which has at most as many as there are consumers, and leaves none of it behind: an entry is
//     overtaken by fewer entries than there are consumers. (They are counted when they collide; after some have gone it
//     takes a few dozen entries until blocks are shorter.) One session alone keeps to the order exactly. An entry that
//     comes back is noticed at once if it is among the first four that are reserved, and otherwise within a third of
//     the session timeout.
//   - A lost reply is not an entry lost or doubled. Every transaction writes its number to an ephemeral node of its
//     session, its receipt: whoever has lost the reply reads that. An Offer that returned nil is delivered exactly
//     once by Take, however the connections fare; one that returned [UncertainError] at most once.
//   - A Take drops nothing silently. If nobody can tell whether it has happened it returns the data with an
//     [UncertainError]. That is so only if the session was lost with the answer, ctx ended while the request was on
//     its way, somebody has deleted receipts, or the queue was deleted and made anew meanwhile.
//   - An item that is reserved is delivered again, in its old place, if its consumer crashes, is cut off for the session
//     timeout, or gives it back. [Item.Ack] succeeds only for the claim that is in force, in one transaction: of two
//     consumers who both believe to have an item one at most gets it acknowledged. [Item.Attempt] counts.
//   - An offer wakes two of the sessions that wait at an empty queue, and each that finds something makes room for the
//     next one. What the server does not tell is found out by a look every third of the session timeout.
//   - Close, the end of a ctx, and the loss of a session leave nothing behind. Receipts go a second after their last use.
//
// # Failure
//
// Take is at most once: a consumer that dies with the data in hand has taken it. Reserve is at least once: one that
// dies after its work and before its Ack has the work done again. Nothing is exactly once but what compares
// [protocol.Grant.Token] or uses [protocol.Grant.Check].
//
// Data that an entry has been given by others (with a new version) before it was removed is what is returned. Whoever
// deletes nodes of the queue by hand removes entries; below -receipts, takes away certainty; the children of an entry,
// frees it, and its consumer is told.
//
// The number of entries is not bounded unless every producer asks for [WithMaxLength]. There are no priorities and no
// delays.
package queue
