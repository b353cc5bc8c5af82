// Package protocol connects to ZooKeeper and keeps a session that can be trusted: it is known to be
// lost before the servers can give to another client what it holds.
//
// A program connects to an ensemble, hands the [Client] to the recipes, and closes it in the end:
//
//	client, err := protocol.Connect(ctx, "zk1:2181,zk2:2181,zk3:2181/app")
//	if err != nil {
//		return err
//	}
//	defer client.Close()
//
// [WithSessionTimeout], [WithDialer], [WithTLS], [WithTLSFiles], [WithAuth] and [WithStateListener]
// configure the connection. [WithACL], [WithACLFor], [WithOwnerData], [WithBackOff], [WithLogger]
// and [WithObserver] also configure a view of it: see [Client.With].
//
// Authors of recipes use the rest:
//
//   - A [Recipe] validates, and names itself in errors and events. [AcrossSessions] is the frame of
//     a verb, and [Recipe.Acquire] that of a verb that acquires something.
//   - The methods of [Session] read and write. [Do] and [DoOnce] run what has no method. [Detach]
//     runs work that must not be left half-way.
//   - [Session.CreateOwn] creates a contender's node. [Session.WaitNode] and [Session.WaitChildren]
//     wait. So does [Session.WaitAny], for nodes watched with [Session.Watch].
//   - [Recipe.NewGrant] makes a node a [Grant].
//
// Contenders in order of arrival are in package protocol/line. A whole recipe is in
// docs/writing-a-recipe.md.
//
// # Sessions
//
// A [Session] has a [zk.Conn] of its own and ends with it. A zk.Conn by itself silently opens a new
// session after the old one has expired, and runs there what was meant for the old one.
//
//	           handshake                 connection lost
//	dialing ──────────────▶ connected ◀─────────────────▶ suspended
//	   ▲                        │      connection resumed      │
//	   │                        │                              │ trust has run out, or a
//	   │                        │ the server says: expired     │ whole timeout was silent
//	   │        next session    ▼                              │
//	   └────────────────────── lost ◀──────────────────────────┘
//
// A suspended session keeps all it has: nodes, watches and what it holds. A lost session keeps
// nothing. What it held is lost at that moment, and contenders that wait begin again in the next
// session.
//
// The servers may still know a session that the client has given up. The client closes this
// orphaned session in the background, as soon as it reaches a server. That matters after an outage
// of the whole ensemble, which does not count towards the timeout: the nodes of the session would
// stay for another whole timeout.
//
// To resume a session, the client tries every address of every server of the connect string in
// turn. While names cannot be resolved, it tries the addresses that they had. Dialling and the
// handshake may take a sixth of the session timeout each, so that there is time for another server.
//
// A session never goes back in time: no server resumes it that knows less than the session has
// seen. It misses no event either: watches that were set over one connection are set again over the
// next, for what has happened since. These are two numbers, because an answer may come before the
// watches are set again. A new connection claims the newest transaction that any answer or event
// has told of. Watches are set again from the transaction up to which no event is missing.
//
// # Trust
//
// What is held in a session is held until a deadline, which is computed from clocks. Only contact
// in which the leader takes part moves this deadline on.
//
// Two facts make that necessary. A holder that is cut off hears nothing while the ensemble expires
// its session and grants its lock to the next contender. And answers from the connected server
// prove nothing: a follower that has lost its leader answers pings and reads for up to syncLimit
// ticks, while the leader expires the session.
//
// With T for the granted timeout, the deadline is the earliest of
//
//	confirmed + 2/3 T     confirmed: the send time of the latest request that the leader answered
//	carried  + 11/12 T    carried:   the send time of the latest request that the leader is certain to know about
//	agreed   + 11/12 T    agreed:    the send time of the latest request that a quorum agreed to
//
// # Why trust is sound
//
// A follower's reports. The leader expires a session no earlier than T after the last contact that
// it knows about. It knows about a contact at once if the session is connected to the leader
// itself, is opened, or moves to another server: then the leader has to validate it. Otherwise the
// follower notes the contact when a request arrives. It tells the leader in its answer to the
// leader's next ping, which comes every half tick. A timeout is two ticks or more, so that is at
// most T/4 later, or T/3 if the ping is a little late.
//
// A request that the leader has answered, sent at s, went down the same ordered connection as these
// reports. So the leader then knew about every contact that the client had seen answered T/3 before
// s. This is carried: the session may end T after it. Once a session has been busy for a while,
// carried is 3/8 T before confirmed, and the second bound is stricter than the first. The first
// bound holds young sessions to the same measure.
//
// Clock rates. A twelfth of T is kept in reserve, for clocks that run at different rates. Both the
// monotonic and the wall clock are read, and the one that went further counts, as the monotonic
// clock stops while a machine sleeps. Setting the wall clock forward loses what is held. Setting it
// back does nothing.
//
// The leader's quorum. All this holds for one leader. A leader that was deposed and does not know
// it answers syncs for seconds, but no quorum agrees to its writes. Its successor is elected by a
// quorum, of which at least one member has voted for the last write before. From then on it gives
// every session a whole new T. So agreed bounds trust under any leader.
//
// Resumptions. A follower matches the leader's validations with handshakes by the session alone. So
// a validation for a handshake that was abandoned may answer a later one. Then confirmed and
// carried are later than what the leader knows, by the time between the two handshakes. agreed
// bounds that, as a resumption does not renew it.
//
// Assumptions:
//
//   - The timeout is two ticks or more, as servers demand unless minSessionTimeout is set lower.
//   - Clocks run at the same rate to within a few percent over one timeout. They need not agree.
//   - The leader's pings reach a connected follower at most T/12 late. A server behind an observer
//     master reports in two hops of half a tick each: ask for timeouts of four ticks or more there.
//   - A follower may lose the report of one contact in millions, if it arrives while the follower
//     collects its reports. The next contact, an eighth of T later, makes up for it.
//
// # How trust is renewed
//
// While anything is held, or a recipe asks for it with [Session.KeepAlive], the session sends eight
// requests per timeout, all told. Six are syncs, which the leader answers. The other two are for a
// quorum to agree to: each deletes a node that does not exist. That changes nothing, and is voted
// on like any other write. Requests of the recipes replace both, and while anything is held, both
// replace pings.
//
// Syncs are T/8 apart because three of them take 3/8 T: T/3 for the report of a contact, and T/24
// for its answer. So carried is never older than T/2, and with writes T/2 apart nor is agreed. At
// the worst moment 5/12 T of trust is left. What is survived is a blip that leaves time to connect
// and to write within that. If the quorum stops agreeing while the leader still answers, that is
// all the time that is left.
//
// Requests are twice as close for T/2 after an answer took longer than T/24, and after a
// resumption, which is followed by a write at once if the last one was T/4 ago. A write comes
// earlier by the time that the last one took. And where a sync makes the leader certain to know of
// a newer contact, while carried lags far behind, it is sent then.
//
// A contender that waits in line needs no trust, so its session sends nothing but pings. If its
// server falls silent, the session is resumed at another one after two thirds of T. When the
// contender's turn has come and less than a quarter of T is left, the session is confirmed by a
// quorum before anything is granted. As pings are T/3 apart, the leader may then know of a contact
// two thirds of T ago, which leaves a quarter of T. No request makes a follower report sooner. So
// trust has its usual length T/3 later.
//
// If no answer comes within a sixth of T, the session cuts the connection and tries another server.
// A quarter of T is left then to come back with nothing lost.
//
// If the next server takes as long, the quorum is slow, and reconnecting would only begin the wait
// anew. So the time for an answer doubles with each cut, and stays twice that of the last write.
// Meanwhile the session sends requests at the same pace, as carried is only as recent as they are
// close. A quorum that takes almost a quarter of T for each write loses nothing, even if it begins
// to without notice.
//
// Progress of a long request or reply is a sign of life, too, though zk.Conn gives it two thirds of
// T in all. Just before trust runs out the session is resumed once more if that renews trust: the
// leader takes part in it, so it renews confirmed and carried, though not agreed.
//
// # Guarantees
//
//   - What was begun in one session never runs in another.
//   - [Session.Err], [Grant.Err] and the Err of a grant's context are computed when they are
//     called. If they are nil, the ensemble has not given to another client what is held, by the
//     assumptions above.
//   - An operation that is reported as not having happened does not happen later. One that was not
//     sent when its ctx ended is never sent. One that was sent is found out about in the
//     background, and undone.
//   - A node of ours that is no longer wanted is deleted, whatever has become of the caller's ctx.
//   - A node counts as ours only with the session and the nonce in its name. Where names are used
//     again, its czxid has to be the one that it was created with. It is granted only if it exists,
//     is owned by the current session, and no contender is ahead that blocks it.
//   - However many calls wait for one node, each session has one watch on it at the server, or two.
//     Waits that were given up leave nothing behind once the node is gone.
//   - What a session has read about another contender's node it never writes down for others, as it
//     may be out of date.
//
// # Failure
//
// A process that is stopped between looking at Err and acting on it acts late. Nothing local can
// prevent that. Let the protected resource compare [Grant.Token], or put [Grant.Check] in front of
// a ZooKeeper transaction.
//
// An ensemble that has lost its data knows neither its locks nor the numbers that tokens come from.
// An ACL that forbids a client to delete its own nodes leaves them until its session ends.
//
// Errors of the server wrap those of zk.Conn. A refusal for lack of a permission says which node
// and which permission it is about. Errors that zk.Conn does not know are [ErrThrottled],
// [ErrReadOnly], [ErrQuotaExceeded] and [ErrAuthRequired], or texts such as "unknown error: -122".
package protocol
