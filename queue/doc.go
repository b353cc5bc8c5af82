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
//     early, with nothing lost. The way out is another path; or drain the queue, delete its node while no client
//     uses it, and go on.
//   - There is one order, and so one leader through which everything goes. More consumers make the work behind the
//     queue faster, and the queue itself as long as servers and network are what each of them waits for: those who
//     race need two round trips for an entry, a read and a removal, where one alone has read ahead.
//
// # Layout
//
// The queue's node is persistent, and stays when the queue is empty. Do not make it a container, and do not delete it
// while a client uses it: numbers then begin at zero again, and a request that is on its way for an old entry removes or
// overwrites the new one of the same name.
//
// An entry is the persistent node qn-<sequence> below the queue's path, as that of the Java DistributedQueue and of
// Curator's SimpleDistributedQueue, with which a path can be shared. Nodes with other names are left alone. Beside
// the queue, as siblings of its node, there are <path>-receipts and <path>-waiting: see below. An entry that is
// reserved has a child; other libraries cannot remove it then, but do not know why and may complain, so mixed fleets
// should keep to [Queue.Take]. To reserve an entry takes the permissions to create, write and delete
// on it. Without the last one the claim stays until it is granted, or the session ends, and the client's
// logger is told. A claim writes the entry's data once more: the new version keeps others
// from reserving what they have read before.
//
// # Guarantees
//
//   - Entries are taken in the order of their numbers, and those of one producer are offered in the order of its calls.
//     One session alone keeps to the order exactly. Where consumers of several sessions race, what one of them takes has
//     fewer entries before it that are left than there are consumers; see below. An entry that comes back is noticed at
//     once if it is among the first four that are reserved, and otherwise within a third of the session timeout.
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
// # Consumers that race
//
// Those who find that others were faster take turns, if the queue is long enough. They share a node among the receipts,
// whose versions stand for the numbers of entries. Whoever removes an entry writes to that node in the same transaction,
// which costs nothing, and the version in the answer is the number of the entry that is its next. So consumers need
// not know what the others have taken; and since each has one number at a time, and they are given out in order, no more
// entries are left before the one that it takes than there are other consumers. (Where a queue is short, each takes the
// one that is its own by rank of the first few of a listing, of as many as there are consumers: which has the same bound.
// A PollN of several takes what is first.)
//
// An entry stays behind if the consumer that has its number is slow, is dead, or does not ask again. Therefore whoever is
// given a number looks whether the entry twice as many numbers back as there are consumers is gone, while it reads its
// own, and takes that first if it is not. Consumers that die or lose an answer still count for the bound until then; should two
// of them have had to look after one another, what they left is found by a listing within a third of the session
// timeout. The node goes when somebody finds himself alone or the numbers lead to nothing, and is made anew as needed.
//
// All this only says who should try what. What removes an entry is the transaction, so a number that is wrong, for whatever
// reason, can cost order or a round trip, and never an entry.
//
// # Failure
//
// Take is at most once: a consumer that dies with the data in hand has taken it. Reserve is at least once: one that
// dies after its work and before its Ack has the work done again. Nothing is exactly once but what compares
// [Item.Token] or uses [Item.Check].
//
// Data that an entry has been given by others (with a new version) before it was removed is what is returned. Whoever
// deletes nodes of the queue by hand removes entries; below -receipts, takes away certainty; the children of an entry,
// frees it, and its consumer is told.
//
// A back-off that ends ([protocol.WithBackOff]) bounds [Queue.Peek], [Queue.Len], [Item.Ack] and [Item.Nack]. Offers and
// removals share transactions with other calls: they are repeated until ctx ends, or the session and then the back-off.
//
// The number of entries is not bounded unless every producer asks for [WithMaxLength]. There are no priorities and no
// delays.
package queue
