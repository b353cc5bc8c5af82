// Package protocol connects to ZooKeeper. A lock held through it ends at the client before the
// servers can grant the same lock to anyone else.
//
//	client, err := protocol.Connect(ctx, "zk1:2181,zk2:2181,zk3:2181/app")
//	if err != nil {
//		return err
//	}
//	defer client.Close()
//
// Connect once, give the [Client] to the recipes and close it in the end. [Client.With] changes
// options for some recipes. Authors of recipes go on with package protocol/recipe.
//
// # Sessions
//
// A [Session] has a [zk.Conn] of its own and ends with it.
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
// The client never gives up a session that holds nothing. So waiters keep their places in line over
// a restart of the whole ensemble.
//
// A session never goes back in time, and it misses no event: watches are set again over the next
// connection.
//
// # Trust
//
// A holder that is cut off cannot know that the ensemble has expired its session. Even an answer
// proves nothing, because a follower that has lost its leader goes on answering for a while. So
// locks are held until a deadline that the client computes from its clocks, and only contact with
// the leader moves the deadline on.
//
// With T for the granted timeout, the deadline is at most 2/3 T after the latest request that the
// leader has answered was sent. At the worst moment 5/12 T of trust is left.
//
// This assumes that all clocks run at the same rate (to within a few per cent) and that T is at
// least two of the servers' ticks. Behind an observer master, ask for four ticks or more. Package
// internal/trust has the other assumptions and the proof.
//
// A session that holds a lock sends eight small requests in each T, two of them writes. A waiting
// contender needs no trust and sends only pings.
//
// # Guarantees
//
//   - An operation of one session never runs in another.
//   - [Session.Err], the Err of a lock and the Err of its context are computed at each call. If
//     they return nil, the ensemble has not given the lock to another client (see Trust).
//   - If a call says that its operation did not happen, it does not happen later.
//   - The client deletes its own unwanted nodes even if the caller's ctx has ended.
//
// # Failure
//
// A process can stop between a look at Err and its next step, and act late. So write to ZooKeeper
// through the lock's Multi, and let other stores compare its Token.
//
// An ensemble that has lost its data has forgotten its locks, and its tokens begin again. If an ACL
// forbids a client to delete its own nodes, they stay until its session ends.
//
// The server's errors wrap the errors of zk.Conn. A refusal names the node and the missing
// permission.
package protocol
