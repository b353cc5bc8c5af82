// Package protocol is what the ZooKeeper recipes beside it have in common: sessions that are known to be alive,
// operations whose outcome is known, and the line in which contenders stand.
//
// Its first half is for everybody: [Connect] to an ensemble, hand the [Client] to the recipes, close it in the end.
//
//	client, err := protocol.Connect(ctx, "zk1:2181,zk2:2181,zk3:2181/app")
//	if err != nil {
//		return err
//	}
//	defer client.Close()
//
// Its second half is for authors of recipes: [Session.EnsurePath], [Do] and [Settle] (the retryOperation of other
// libraries), [ParseName] and the order of names, a [Line] to contend in or to claim, and the [Grant] that comes of it.
// A recipe on top of a Line is a [Judge] and a few names.
//
// # Sessions
//
// A [zk.Conn] silently opens a new session after its old one has expired, and runs in it what was meant for the
// old one. So here a [Session] has a zk.Conn of its own, and ends with it:
//
//	           handshake                 connection lost
//	dialing ──────────────▶ connected ◀─────────────────▶ suspended
//	   ▲                        │      connection resumed      │
//	   │                        │                              │ trust has run out, or a
//	   │                        │ the server says: expired     │ whole timeout was silent
//	   │        next session    ▼                              │
//	   └────────────────────── lost ◀──────────────────────────┘
//
// A suspended session keeps everything: nodes, watches, what it holds. A lost one keeps nothing: whatever it held is
// lost at that moment, whoever waits begins again in the next session, and as the servers may not have noticed yet,
// the client closes it there, in the background, as soon as it can reach one. That matters after an outage of the
// whole ensemble, which does not count towards the timeout: the nodes would be there for another whole timeout.
//
// # Trust
//
// A holder that is cut off hears nothing while the ensemble expires its session and grants its lock to the next. Nor is
// an answer from the server that it is connected to a proof of anything: a follower that has lost its leader goes
// on answering pings and reads for up to syncLimit ticks, while the leader expires the session. So what is held
// under a session is held until a moment that is computed from clocks, and what moves that moment on is what the
// leader has taken part in. With T for the granted timeout, it is the earliest of
//
//	confirmed + 2/3 T     confirmed: when the last request that the leader answered was sent
//	carried  + 11/12 T    carried:   when the last contact that the leader must have learnt of was sent
//	agreed   + 11/12 T    agreed:    when the last request that a quorum agreed to was sent
//
// and this is why. The leader expires a session no earlier than T after it last learnt of a contact. It learns of one
// at once if the session is its own, if the session is opened or if it moves to another server, which has the leader
// validate it. Otherwise the follower notes the contact when a request arrives, and tells the leader in its answer to
// the leader's next ping, which it gets every half tick. As timeouts are two ticks or more, that is at most T/4 later,
// or T/3 if the ping is a little late. A request that the leader has answered, sent at s, went down the same ordered
// connection as those reports; so the leader had by then learnt of every contact that the client had seen answered
// T/3 before s. That is what carried stands for, and T after it the session may end. A twelfth of T is kept in
// reserve, for clocks that run at different rates. Where carried is T/3 before confirmed, as it is once a session has
// been busy for a while, the second bound is the stricter one; the first keeps young sessions to the same measure.
//
// All that is about one leader. One that has been deposed and does not know it goes on answering syncs, for seconds, but
// gets no write agreed to. Its successor comes to power with the votes of a quorum, at least one member of which
// had voted for that write before, and gives every session a whole new T from then on. So what was agreed to stands
// for T, under whatever leader.
//
// While anything is held or waited for, a request that the leader answers is sent every twelfth of T, and one that a
// quorum has to agree to every quarter, unless the recipes write anyway: a sync, and the deletion of a node that does
// not exist, which changes nothing but is voted on like any other. If it is not answered within a sixth of T the
// connection is cut, and another server is tried: a quarter of T is left then to come back with nothing lost.
//
// The assumptions are these. The timeout is two ticks or more, as servers demand unless minSessionTimeout is set lower
// than that. Clocks run at the same rate to within a few percent over one timeout; they need not agree. The leader's
// pings reach a connected follower at most T/12 late. (A server behind an observer master reports in two hops, of half a
// tick each: ask for timeouts of four ticks or more there.)
//
// Both the monotonic and the wall clock are asked, and the one that went further counts, as the first one stops while a
// machine sleeps. Setting the wall clock forward loses what is held; setting it back does nothing.
//
// # Guarantees
//
//   - What was begun under one session never runs under another.
//   - [Session.Err], [Grant.Err] and the Err of a grant's context are computed when they are called. What they say
//     is lost was so, to the best of all clocks, before the ensemble could give it to anybody else.
//   - An operation that is reported as not having happened does not happen later. One that was not sent when its
//     ctx ended is never sent; one that was is found out about, in the background, and undone.
//   - A node of ours that is not wanted any more is deleted, whatever has become of the caller's ctx.
//   - A node is counted as ours only with the session and the nonce in its name, and granted only if it exists, is
//     owned by the current session, and nothing is ahead that its judge waits for.
//   - However many wait for one node, the server has one watch on it for each session, or two, and those who have given
//     up leave nothing behind once the node is gone.
//
// # The next in line
//
// Whoever stands in a [Line] waits for one node. That this one is gone does not say that nobody else is ahead: its
// contender may have given up. So the line has to be listed again, which costs a round trip and as many bytes as there are
// contenders, at the very moment at which everybody waits. But a holder knows that nobody is ahead of it, and as numbers
// only grow nobody ever will be. When it leaves it says so, with a transaction that
//
//	creates  <its node>-passed
//	deletes  <its node>-passed
//	deletes  <its node>
//
// Whoever waits for the node has a watch for the creation of the other one, too. A server tells of events in the order in
// which things have happened: it hears of the creation, while its watch on the node stands, over one connection and with
// its own node untouched, and holds without another request. The node that was created is never seen, as a transaction
// is executed as one. It uses up a number of the sequence, which ends after two thousand million.
//
// If the node goes in another way (its contender has died, has given up, was deleted by an operator, is another
// library's) there is no such event, and the line is listed. Nor is an event believed that may have been missed or
// overtaken: after a reconnect the line is listed. The watch for the creation would then stay for ever, as nobody else
// creates that node: so those who have it do, and delete it, once they know that the node itself is gone. Others that hear of
// that have heard of the deletion before, as each watches the node itself for as long, and look at the line.
//
// Who has one ahead only needs no such watch: it is enough that this one is gone. (A node that is converted is changed
// first, so that this is what those who wait hear of, and not its end.)
//
// # Failure
//
// A process that is stopped between looking at Err and acting on it acts late: nothing local can prevent that. Let
// the resource that is protected compare [Grant.Token], or put [Grant.Check] in front of a transaction of ZooKeeper.
// An ensemble that has lost its data knows neither its locks nor the numbers that tokens come from. An ACL that
// forbids a client to delete its own nodes leaves them there until its session ends.
package protocol
