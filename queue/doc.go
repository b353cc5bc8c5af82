// Package queue has a distributed queue: any number of processes offer data at one end, and any
// number take it away at the other.
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
// ZooKeeper keeps all data in the memory of each server, and a quorum writes every change to disk.
// So this queue is for tasks and commands, by processes that use ZooKeeper anyway and want its
// guarantees: hundreds to a few thousands a second in all, of a few kilobytes each. It is NOT a
// message broker. The limits, in numbers:
//
//   - An entry has at most a megabyte with its path ([protocol.MaxData]). It should have a
//     thousandth of that.
//   - A queue should be short. It works with 100,000 entries. Besides their data they take some 20
//     MB of every server's memory, and a listing is an answer of 1.7 MB. A consumer takes a listing
//     when it begins, and again when it has used that up. [Queue.Len] and [Queue.Peek] take one
//     each time. Tools whose clients limit the size of answers, as Java's do by default to 1 MB,
//     cannot list more than about 50,000 entries.
//   - One path takes 2,146,435,072 entries in its life, which is 24 days at 1,000 a second. Numbers
//     of entries have 31 bits, and servers repeat the last one. Offers then fail with
//     [protocol.ErrSequenceExhausted], a million numbers early, with nothing lost. The way out is
//     another path. Or drain the queue, delete its node while no client uses it, and go on.
//   - There is one order, and so one leader through which everything goes. More consumers make the
//     work behind the queue faster. They make the queue itself faster as long as each of them waits
//     for servers and network. Consumers that race need two round trips for an entry, a read and a
//     removal, where a single one has read ahead.
//
// # Layout
//
// The queue's node is persistent, and stays when the queue is empty. Do not make it a container,
// and do not delete it while a client uses it. Numbers would begin at zero again, and a request
// that is on its way for an old entry would remove or overwrite the new one of the same name.
//
// An entry is the persistent node qn-<sequence> below the queue's path. The Java DistributedQueue
// and Curator's SimpleDistributedQueue have the same layout, and can share a path with this one.
// Nodes with other names are left alone. Beside the queue, as siblings of its node, there are
// <path>-receipts and <path>-waiting: see below.
//
// An entry that is reserved has a child, its claim. Other libraries cannot remove it then, but do
// not know why and may complain, so mixed fleets should keep to [Queue.Take]. To reserve an entry
// takes the permissions to create, write and delete on it. Without the last one the claim stays
// until the permission is granted or the session ends, and the client's logger is told. A claim
// writes the entry's data once more. The new version excludes consumers that have read the entry
// before.
//
// # Guarantees
//
//   - Entries are taken in the order of their numbers, and those of one producer are offered in the
//     order of its calls. A single consuming session keeps to the order exactly. With n competing
//     sessions, order is approximate: an entry may be taken while at most n−1 older ones are still
//     in the queue. An entry that comes back is noticed at once if it is among the first four that
//     are reserved, and otherwise within a third of the session timeout.
//   - A lost reply is not an entry lost or doubled. Every transaction writes its number to an
//     ephemeral node of its session, its receipt. If the reply is lost, the session reads the
//     receipt. The entry of an Offer that returned nil is delivered exactly once by Take, however
//     the connections fare. One of an Offer that returned [UncertainError] is delivered at most
//     once.
//   - A Take drops nothing silently. If it cannot be found out whether a removal has happened, Take
//     returns the data with an [UncertainError]. That is so only if the session was lost with the
//     answer, ctx ended while the request was on its way, or receipts or the queue were deleted
//     meanwhile.
//   - An item that is reserved is delivered again, in its old place, if its consumer crashes, is
//     cut off for the session timeout, or gives it back. [Item.Ack] succeeds only for the claim
//     that is in force, in one transaction. Of two consumers that both believe to have an item, at
//     most one gets it acknowledged. [Item.Attempt] counts.
//   - An offer wakes two of the sessions that wait at an empty queue. Each that finds an entry
//     makes room for the next one. What the server does not tell is found by a look every third of
//     the session timeout.
//   - Close, the end of a ctx, and the loss of a session leave nothing behind. Receipts are deleted
//     a second after their last use.
//
// # Consumers that race
//
// Racing consumers draw tickets, if the queue is long enough: they share a node among the receipts,
// whose version is the number of the next entry to take. A consumer that removes an entry writes to
// that node in the same transaction, which costs nothing. The version in the answer is its next
// ticket. So consumers need not know what the others have taken. Each has one ticket at a time, and
// tickets are given out in order. So fewer entries are left before the one that it takes than there
// are consumers.
//
// Where a queue is short, consumers are ranked instead. Of the first entries of a listing, as many
// as there are consumers, each takes the one of its own rank, which has the same bound. A PollN of
// several entries takes the first ones.
//
// An entry stays behind if the consumer with its ticket is slow, is dead, or does not ask again. So
// each consumer looks, while it reads the entry of a new ticket, at the entry twice as many numbers
// back as there are consumers. If that is still there, it takes that first. Consumers that die or
// lose an answer still count for the bound until then. If two of them should have looked after one
// another, what they left is found by a listing within a third of the session timeout. The node is
// deleted when one consumer is left, or when its numbers lead to no entries any more. It is created
// again as needed.
//
// All this only says which consumer should try which entry. The transaction removes it. So a wrong
// ticket, for whatever reason, can cost order or a round trip, and never an entry.
//
// # Failure
//
// Take is at most once: a consumer that dies with the data in hand has taken it. Reserve is at
// least once: the work of a consumer that dies before its Ack is done again. Only what compares
// [Item.Token] or uses [Item.Check] is exactly once.
//
// If another client changes the data of an entry before it is removed, the new data is returned.
// Deleting nodes by hand has these effects: below the queue's path it removes entries, below
// -receipts it makes outcomes uncertain, and below an entry it ends the claim, of which the
// consumer is told.
//
// One deletion by hand is not noticed: that of a new receipt whose first answer was lost, before
// the session has read the receipt. Its transaction counts as not executed, and is repeated. An
// entry may be doubled or lost then. So leave -receipts alone while clients use the queue.
//
// A back-off that ends ([protocol.WithBackOff]) bounds [Queue.Peek], [Queue.Len], [Item.Ack] and
// [Item.Nack]. Offers and removals share transactions with other calls. They are repeated until ctx
// ends, or the session does, and then the back-off.
//
// The number of entries is not bounded unless every producer asks for [WithMaxLength]. There are no
// priorities and no delays.
package queue
