// Package protocol connects to ZooKeeper. A lock held through it ends at the client before the
// servers can grant the same lock to anyone else.
//
//	client, err := protocol.Connect(ctx, "zk1:2181,zk2:2181,zk3:2181/app")
//	if err != nil {
//		return err
//	}
//	defer client.Close()
//
// Connect once, give the [Client] to the recipes, and close it in the end. [WithSessionTimeout],
// [WithTLS], [WithTLSFiles], [WithAuth], [WithExistingChroot], [WithStateListener] and [WithDialer]
// configure the connection. [WithLogger], [WithObserver], [WithACL], [WithACLFor], [WithOwnerData]
// and [WithBackOff] also configure a view of it: see [Client.With].
//
// Authors of recipes go on with package protocol/recipe.
//
// # Sessions
//
// A [Session] has a [zk.Conn] of its own and ends with it. (A zk.Conn by itself silently opens a
// new session after the old one has expired, and runs the old session's requests there.)
//
//	           handshake                 connection lost
//	dialing ──────────────▶ connected ◀─────────────────▶ suspended
//	   ▲                        │      connection resumed      │
//	   │                        │                              │ trust in its locks has run
//	   │                        │ the server says: expired     │ out, or it says: expired
//	   │        next session    ▼                              │
//	   └────────────────────── lost ◀──────────────────────────┘
//
// A suspended session keeps its nodes, watches and locks. A lost session keeps nothing: its locks
// are lost at that moment, and waiting contenders begin again in the next session.
//
// The client never gives up a session that holds nothing, because sessions do not age while there
// is no quorum. So waiters keep their places in line over a restart of the whole ensemble, however
// long it takes. Meanwhile a recipe's calls wait, and a [Session]'s calls end with [zk.ErrNoServer]
// after a session timeout without an answer. If the servers have lost their data, the session ends.
//
// The servers may still know a session that the client has given up. The client closes such an
// orphan in the background as soon as it reaches a server, because the orphan's nodes would
// otherwise stay for another session timeout.
//
// To resume a session, the client tries every address of every server in turn. It resolves names
// again for each round, in parallel. If a name does not resolve, the client resumes the session at
// the addresses that the name had, but never opens a session there or believes there that a session
// has expired, because the addresses may belong to another ensemble by now. Dialling and the
// handshake each take at most a sixth of the session timeout.
//
// After 25 seconds without a server, a client that holds nothing and has no ephemeral node makes
// one lookup and one dial about every 8 seconds, at random times. A thousand clients of a dead
// ensemble must not be its next outage.
//
// A session never goes back in time: no server resumes it that knows less than the session has
// seen. It misses no event either: watches are set again over the next connection, for everything
// that has happened since.
//
// # Trust
//
// A holder that is cut off cannot know that the ensemble has expired its session. Answers from its
// server prove nothing: a follower that has lost its leader answers pings and reads for up to
// syncLimit ticks, while the leader expires the session. So locks are held until a deadline that
// the client computes from its clocks, and only contact with the leader moves the deadline on.
//
// With T for the granted timeout, the deadline is at most 2/3 T after the latest request that the
// leader has answered was sent. Package internal/trust has the rules, and says why they are sound.
// They assume:
//
//   - The timeout is two ticks or more, as servers demand unless minSessionTimeout is lower.
//   - Clocks run at the same rate to within a few per cent over one timeout. They need not agree.
//   - The leader's pings reach a connected follower at most T/12 late. Behind an observer master
//     reports take two hops: ask for timeouts of four ticks or more there.
//   - A follower can lose the report of one contact in millions. The next contact, T/8 later, makes
//     up for it.
//
// While a session holds anything, it sends eight small requests in each T in place of pings. Six
// are syncs and two are writes that change nothing, which only a quorum can answer. (The recipes'
// own requests replace them.) At the worst moment 5/12 T of trust is left. If no answer comes
// within T/6, the session tries another server.
//
// A waiting contender needs no trust and sends only pings. If its trust is low when its turn comes,
// the session is confirmed by a quorum first.
//
// # Guarantees
//
//   - An operation of one session never runs in another.
//   - [Session.Err], the Err of what is held, and that of its context are computed at each call. If
//     they return nil, the ensemble has not given the lock to another client (under the assumptions
//     above).
//   - An operation that is reported as not having happened does not happen later. If its ctx ended
//     before it was sent, it is never sent. If it was sent, the client finds out in the background
//     what happened, and undoes it.
//   - A node of ours that is no longer wanted is deleted, even if the caller's ctx has ended.
//   - A node counts as ours only with the session and the nonce in its name (and with its czxid, if
//     names are used again). It is granted only if it exists, the current session owns it, and no
//     contender ahead blocks it.
//   - However many calls wait for one node, each session has at most two watches on it. Waits that
//     were given up leave nothing behind once the node is gone.
//   - A session never writes down for others what it has read about another contender's node,
//     because that can be out of date.
//
// # Failure
//
// A process can stop between a look at Err and its next step, and act late. Let the Multi of what is held write
// to ZooKeeper, and let other stores compare its Token.
//
// An ensemble that has lost its data has forgotten its locks, and the numbers that tokens come
// from. If an ACL forbids a client to delete its own nodes, they stay until its session ends.
//
// The server's errors wrap those of zk.Conn, and say which node and permission a refusal is about.
// Errors that zk.Conn does not know are [ErrThrottled], [ErrReadOnly], [ErrQuotaExceeded] and
// [ErrAuthRequired], or texts such as "unknown error: -122".
package protocol
