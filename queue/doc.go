// Package queue has a distributed queue: processes offer data at one end and take it away at the
// other end.
//
//	q := queue.New(client, "/queues/mail")
//	id, err := q.Offer(ctx, data)
//	…
//	// Four workers, until ctx ends. An item that fails is tried again later.
//	err = q.Consume(ctx, 4, func(ctx context.Context, it *queue.Item) error {
//		return deliver(ctx, it.Data())
//	})
//
// Consume is made of [Queue.Reserve], [Item.Ack] and [Item.Nack]. [Queue.Take] removes an entry at
// once.
//
// # Limits
//
// ZooKeeper keeps all data in memory, and a quorum writes every change to disk. So use it for tasks
// and commands of a few kilobytes (hundreds to a few thousand a second). It is NOT a message
// broker.
//
//   - An entry has at most a megabyte ([protocol.MaxData]) and should have a thousandth of that. A
//     reservation and its return each write the data once more.
//   - A queue should be short. It works with 100,000 entries, but Java's tools (and others that
//     limit answers to 1 MB) can list only some 50,000. A busy consumer lists the queue four to ten
//     times a second (less often if that takes long, or if many sessions do it), and once for each
//     item that it gives back without an option.
//   - A path takes 2,146,435,072 entries in its life (24 days at 1,000 a second). An item that
//     comes back counts once more. Then offers fail with [protocol.ErrSequenceExhausted]. Use
//     another path, or delete the drained queue while no client uses it.
//   - Keys ([Queue.OfferKey]) are remembered for an hour.
//   - A delay ([Queue.OfferAfter] or [After]) begins by the producer's clock and ends by the
//     consumer's.
//
// # Guarantees
//
//   - Offer: once if it returned nil. Once or not at all after an [UncertainError]: then offer
//     again with the same key ([Queue.OfferKey]).
//   - Take: at most once. If the outcome is unknown, Take returns the data with an
//     [UncertainError].
//   - Reserve: at least once. If a consumer crashes (or is cut off for the session timeout), its
//     item comes back to its place once another consumer is there. If two consumers believe that
//     they have an item, at most one of them can acknowledge it. [Item.Ack], [Item.Multi] and a
//     store that compares [Item.Token] keep out the former consumer's writes.
//   - IDs do not change (except for dead letters).
//   - Order: exact with a single consuming session (but [Queue.Remove] counts as another). Entries
//     of a producer have the order of its calls. If sessions race, an entry can be overtaken for
//     some tenths of a second (or for seconds, if the queue is very long).
//   - Fairness: sessions with the same number of consuming goroutines get between half and twice an
//     equal share.
//   - [ErrEmpty] is true: at some moment of the call all entries were reserved, delayed or gone.
//     (An entry that another call of this process is about to remove counts as gone. A deposed
//     leader that goes on answering is an exception.)
//   - Waiting sessions send only pings. An offer wakes four of them at most. The first in line
//     acts at once.
//   - No number of requests grows with the queue. (But [Queue.List] reads each entry, and
//     [Queue.Redrive] each dead letter.)
//   - The end of a ctx, a session or a client leaves no receipt or place in line.
//
// # Layout
//
//	<path>/qn-<sequence>                  an entry with the data as offered
//	<path>/entry-<priority>-<sequence>    an entry WithPriorities
//	<path>/item-<ID>-<sequence>           an entry that has moved: its ID and its new place
//	<path>/zkrecipes/held/<owner>/…       entries that a consumer has reserved
//	<path>/zkrecipes/delayed/<time>/…     entries that are not due yet
//	<path>/zkrecipes                      and below it: consumers, receipts, keys, lines, notes
//
// A reservation moves the entry, so the queue's children are exactly the entries that no consumer
// has.
//
// DELETING zkrecipes BY HAND DELETES ALL RESERVED AND DELAYED ENTRIES. Other foreign nodes are left
// alone. Directories are containers. So servers delete an idle empty queue after some minutes
// (unless it has had keys). Then its IDs begin again.
//
// The Java DistributedQueue and Curator's SimpleDistributedQueue may share a path both ways but see
// only entries named qn-<sequence>. kazoo's Queue may offer to a queue [WithPriorities]. It MUST
// NOT CONSUME because it treats any child as an entry.
//
// # Rights
//
// With all permissions but ADMIN below the path (and CREATE on the parent of a missing queue), a
// client can call each verb. With fewer permissions:
//
//   - Offers need C on the queue and on zkrecipes/receipts. Delayed offers also need C on
//     zkrecipes/delayed and offers with a key on zkrecipes/keys. WithMaxLength they need RCWD on
//     zkrecipes/offering.
//   - Consumers need RD and C on the queue, R on its entries, RCWD below zkrecipes/held and
//     zkrecipes/consumers, and RCD on zkrecipes/returned and zkrecipes/delayed.
//
// An entry that a consumer may not read is skipped for up to a minute.
//
// # Failure
//
// Deleting the record of a reserved entry deletes the entry. Deleting the node of its consumer
// brings it back.
//
// If a quota is full, Take, Poll, PollN, Remove and Ack still remove entries. Reserve returns
// [protocol.ErrQuotaExceeded]. So does Nack (it goes on trying).
//
// If a back-off stops ([protocol.WithBackOff]) while an outcome is unknown, a taker returns an
// [UncertainError]. Acknowledgements go on in the background, and offers until ctx ends.
package queue
