// Package queue has a distributed queue: processes offer data at one end, and processes take it
// away at the other.
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
// ZooKeeper keeps all data in the memory of each server, and a quorum writes every change to disk.
// So use the queue for tasks and commands, hundreds to a few thousand a second, of a few kilobytes
// each. It is NOT a message broker.
//
//   - An entry has at most a megabyte ([protocol.MaxData]) and should have a thousandth of that. A
//     reservation and its return each write the data once more.
//   - A queue should be short. It works with 100,000 entries, but tools that limit answers to 1 MB
//     (Java's, by default) can list only some 50,000. A busy consumer lists the queue four times a
//     second (ten times where others compete), or less if that takes more than a tenth of its time.
//   - A path takes 2,146,435,072 entries in its life (24 days at 1,000 a second). Then offers fail
//     with [protocol.ErrSequenceExhausted]: use another path, or drain the queue and delete its
//     node while it is not in use.
//   - Keys ([Queue.OfferKey]) are remembered for an hour, and each costs some hundred bytes.
//   - A delay ([Queue.OfferAfter], [After]) begins by the producer's clock and ends by the
//     consumer's. While all consumers are busy, it can be a quarter of a second late.
//
// # Guarantees
//
//   - Offer: once, if it returned nil. Once or not at all after an [UncertainError]. To settle
//     that, offer again with the same key ([Queue.OfferKey]).
//   - Take: at most once. If the outcome is unknown, Take returns the data with an
//     [UncertainError], so no entry is dropped silently.
//   - Reserve: at least once. If its consumer crashes or is cut off for the session timeout, an
//     item comes back in its place as soon as another consumer is there. Of two consumers that
//     believe to have an item, at most one can acknowledge it. So writes with [Item.Ack] or
//     [Item.Multi], and stores that compare [Item.Token], keep out the former consumer.
//   - IDs do not change, except for dead letters.
//   - Order: exact with a single consuming session. Entries of one producer have the order of its
//     calls. Entries that come back are seen within a quarter of a second. Sessions that race may
//     take an entry while some dozens of older entries are left.
//   - Fairness: consuming sessions with the same number of goroutines get between half and twice an
//     equal share, wherever they are.
//   - [ErrEmpty] is true: at some moment of the call all entries were reserved, delayed or gone.
//     (Busy takers reserve some dozens of entries ahead for 50 milliseconds, or for up to half a
//     second if the network is slow. A deposed leader that goes on answering is an exception: see
//     [protocol.Session.Sync].)
//   - Waiting sessions send pings and nothing else. An offer wakes three of them at most: the first
//     in line acts at once. The second takes over after a tenth of a second and the third after a
//     second, because those before it may be dead.
//   - No number of requests grows with the queue, and a session may reserve any number of items.
//   - Close, the end of a ctx and the loss of a session leave no receipt or place in line.
//
// # Layout
//
//	<path>/qn-<sequence>                  an entry, with the data as offered
//	<path>/entry-<priority>-<sequence>    an entry, WithPriorities
//	<path>/item-<ID>-<sequence>           an entry that has moved: its ID, and its new place
//	<path>/zkrecipes/held/<owner>/…       entries that a consumer has reserved, with their data
//	<path>/zkrecipes/delayed/<time>/…     entries that are not due yet, with their data
//	<path>/zkrecipes/returned/<ID>        attempts, age and reason of an entry that has come back
//	<path>/zkrecipes                      and below it: consumers, receipts, keys, lines
//
// A reservation is a move: one transaction deletes the entry and creates its record. So the queue's
// children are exactly the entries that no consumer has.
//
// DELETING zkrecipes BY HAND DELETES ALL RESERVED AND DELAYED ENTRIES. Other foreign nodes are left
// alone. Directories are containers, so servers delete an idle, empty queue after some minutes
// (unless it has had keys), and its IDs begin again.
//
// The Java DistributedQueue and Curator's SimpleDistributedQueue may share a path both ways. They
// see only entries named qn-<sequence>. kazoo's Queue may offer to a queue [WithPriorities], and
// MUST NOT CONSUME: it treats any child as an entry.
//
// # Rights
//
// With all permissions but ADMIN below the path, a client can call each verb. (It needs CREATE on
// the parent if the queue's node is missing.) Or, with less:
//
//   - Offers need C on the queue and on zkrecipes/receipts, and on zkrecipes/delayed or
//     zkrecipes/keys if they use those. WithMaxLength they need RCWD on zkrecipes/offering.
//   - Consumers need RD and C on the queue, R on its entries, RCWD below zkrecipes/held and
//     zkrecipes/consumers, and RCD on zkrecipes/returned and zkrecipes/delayed.
//
// A consumer leaves an entry that it may not read or delete alone for a minute and logs a warning.
//
// # Failure
//
// If the record of a reserved entry is deleted by hand, the entry is gone and its item is lost. If
// the node of its consumer is deleted by hand, the entry comes back.
//
// If a quota is full, Take, Poll, PollN, Remove and Ack still remove entries, so the queue can be
// emptied. Reserve returns [protocol.ErrQuotaExceeded], and so does Nack, which goes on trying.
//
// If a back-off stops ([protocol.WithBackOff]) while an outcome is unknown, an offer or a removal
// returns an [UncertainError], an acknowledgement goes on in the background, and a reservation goes
// on until ctx ends.
package queue
