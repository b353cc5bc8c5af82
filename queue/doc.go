// Package queue has a distributed queue: any number of processes offer data at one end, and any
// number take it away at the other.
//
//	q := queue.New(client, "/queues/mail")
//	id, err := q.Offer(ctx, data)
//	…
//	// Four workers, until ctx ends. What fails is tried again later.
//	err = q.Consume(ctx, 4, func(ctx context.Context, it *queue.Item) error {
//		return deliver(ctx, it.Data())
//	})
//
// Consume is made of [Queue.Reserve], [Item.Ack] and [Item.Nack]. [Queue.Take] removes an entry at
// once.
//
// # What it is good for, and what not
//
// ZooKeeper keeps all data in the memory of each server, and a quorum writes every change to disk.
// So this queue is for tasks and commands, by processes that use ZooKeeper anyway and want its
// guarantees: hundreds to a few thousands a second in all, of a few kilobytes each. It is NOT a
// message broker. The limits, in numbers:
//
//   - An entry has at most a megabyte with its path ([protocol.MaxData]). It should have a
//     thousandth of that. A reservation writes the data once more.
//   - A queue should be short. It works with 100,000 entries, which take some 20 MB of every
//     server's memory besides their data. A listing is an answer of 1.7 MB then. Tools whose
//     clients limit answers to 1 MB, as Java's do by default, can list some 50,000 entries.
//   - One path takes 2,146,435,072 entries in its life, which is 24 days at 1,000 a second. Delays
//     and moves count. Offers then fail with [protocol.ErrSequenceExhausted], with nothing lost.
//     The way out is another path. Or drain the queue, and delete its node while it is not in use.
//   - A session reserves entries until their paths come to 400,000 bytes, in all its queues. At a
//     path of m characters these are 400,000/(m+60) entries. Then there is [ErrTooManyItems].
//   - Keys ([Queue.OfferKey]) are remembered for an hour. Each costs some hundred bytes of memory.
//   - There is one order, and so one leader through which everything goes. More consumers make the
//     work behind the queue faster, and the queue itself only while they wait for the network.
//   - A delay ([Queue.OfferAfter]) begins by the producer's clock, and ends by the consumer's.
//
// # Layout
//
//	<path>/qn-<sequence>                an entry, with the data as offered
//	<path>/item-<due>-<since>-<attempts>-<priority>-<origin>-<sequence>
//	                                    an entry with a delay, one that was moved, or a dead letter
//	<path>/entry-<priority>-<sequence>  an entry, WithPriorities
//	<path>/<entry>/<owner>              its claim, which is ephemeral, while it is reserved
//	<path>/zkrecipes                    the register, and below it the other records: receipts,
//	                                    tickets, keys, the consumers and producers that wait
//
// Nodes with other names are left alone. One that is created while consumers wait can delay the
// next entry by a minute. To change an entry, set its data: one that is deleted and created again
// with the same name may be delivered as it was before. Directories are created as needed, as
// containers. So servers delete the queue's node some minutes after the last entry and the last
// use, and its IDs begin again. It stays if it was created as a persistent node, or once a key was
// offered.
//
// The Java DistributedQueue and Curator's SimpleDistributedQueue may share a path, both ways. Their
// producers write qn-<sequence>, and their consumers see these entries alone. They log a warning
// about each other name. Curator's poll fails while the first entry is reserved, so use
// [Queue.Take] beside it. kazoo's Queue offers what [WithPriorities] reads.
//
// kazoo's CONSUMERS CANNOT SHARE A PATH. kazoo's Queue takes any child for an entry, the node
// zkrecipes included. While there are entries it takes them, also before they are due. After the
// last one its get() raises NotEmptyError, and still does when new entries come. If our clients
// were idle for a while, it may return the register's data as if that were an entry.
//
// # Rights
//
// Besides what is below its own path a queue needs nothing, except CREATE on the parent where its
// node is missing. New nodes get the ACL of [protocol.WithACL]. With all permissions but ADMIN
// below the path, a client can call each verb. One verb needs these (C, R, W, D) on
//
//	                     queue  entry  zkrecipes  receipts
//	Offer, OfferAll      C                        C         WithMaxLength: W, too
//	  OfferAfter         C             W          C         likewise all offers WithPriorities
//	  OfferKey           C                        C         and C on zkrecipes/keys
//	Take, Poll, PollN    RD     R      C
//	Reserve, TryReserve  R      CRW    C
//	  Ack                D      D                 C
//	  Nack                      D      W          C
//	  After, AtTail      CD     D      W          C
//	  to dead letters    D      D                 C         and C on their queue, W on its zkrecipes
//	Len, List, Drained   R
//	Peek                 R      R
//	Remove               D                                  of a reserved entry: RD on it
//	Free                        RD
//
// and C on zkrecipes where what is below is missing. Producers near the maximum length also need
// CRD on zkrecipes/offering, and OfferWait R on the queue and its entries. An entry that may not be
// read or reserved is set aside for a minute, and the logger is told.
//
// Other permissions on the records make a difference in costs. Without R on zkrecipes consumers
// collide. Without CRD on zkrecipes/waiting those that wait look each third of a session timeout.
// Without D receipts stay until their session ends, and keys are kept.
//
// # Guarantees
//
//   - A lost reply is not an entry lost or doubled. Every transaction writes its number to an
//     ephemeral node of its session, its receipt. If the reply is lost, the session reads that.
//   - Offer: once if it returned nil. Once or not at all after an [UncertainError]. The same key
//     again settles which ([Queue.OfferKey]).
//   - Take: at most once. Nothing is dropped silently: if it cannot be found out whether an entry
//     was removed, Take returns its data with an [UncertainError].
//   - Reserve: at least once. An item comes back, in its place, if its consumer crashes or is cut
//     off for the session timeout. Of two consumers that believe to have it, at most one gets it
//     acknowledged. What compares [Item.Token] or uses [Item.Check] is exactly once.
//   - Order: exact with a single consuming session. Entries of one producer have the order of its
//     calls. With priorities, an entry that was offered in the last tenth of a second may be
//     overtaken by worse ones, as its consumer may not have listed it yet. With n sessions of one
//     call each, an entry may be taken while some older ones are left, a few times n at most. More
//     calls in a session relax that in proportion. A session that was lost counts until the servers
//     have ended it.
//   - Fairness: consuming sessions with as many goroutines get between half and twice an equal
//     share, and one with a single goroutine does not starve. Consumers pause for some milliseconds
//     now and then, which leaves a share to those of other libraries.
//   - [ErrEmpty] is true: at some moment of the call all entries were reserved, delayed or gone. A
//     server whose leader was deposed may miss an entry; see [protocol.Session.Sync].
//   - Waiting is quiet. A session that waits sends pings, and one of them all looks once a minute.
//     An offer wakes at most two sessions. An entry that comes back is noticed at once.
//   - Close, the end of a ctx, and the loss of a session leave no receipt, claim or place in line.
//
// # Consumers that race
//
// Consumers of several sessions draw tickets if the queue is long enough. A ticket is the number of
// the entry that a consumer tries next, and comes from the version of a node that all of them write
// to. They draw in the transaction that takes entries, which costs nothing. Where the queue is
// short or has priorities, each consumer begins at an entry of its own rank. An entry whose
// consumer has gone is found by a listing each third of the session timeout, and so is one whose
// delay ends after the tickets have come past its number. Tickets only say who tries what. The
// transaction takes it. So a wrong ticket can cost order or a round trip, and never an entry.
//
// # Failure
//
// If another client changes the data of an entry before it is removed, the new data is returned. If
// a claim is deleted by hand, its consumer is told, and the entry comes back.
//
// A receipt that is deleted by hand makes the outcome of a transaction uncertain if its reply is
// lost, too. Calls report that, and nothing is lost or doubled silently: a receipt exists before
// its first transaction. The whole node zkrecipes may be deleted with all below it, with the same
// effect. Keys are forgotten then. Items of a session that ends may be noticed a minute late.
//
// A back-off that ends ([protocol.WithBackOff]) bounds how long a request is repeated. Where its
// outcome is unknown, an offer or a removal then returns an [UncertainError], an acknowledgement
// goes on in the background, and a reservation goes on until ctx ends.
package queue
