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
// A session never goes back in time: it is resumed by no server that knows less than the session has seen. And it
// misses nothing: watches that were set over one connection are set again over the next, for whatever happened since. Those
// are two numbers, because an answer may come before the watches are set again: the newest transaction that any
// answer or event told of, which a new connection claims, and the one up to which no event is missing.
//
// Every address of every server of the connect string is tried in turn. While names cannot be resolved, a session looks for
// its servers at the addresses where they were. Dialling and the handshake may take a sixth
// of the session timeout each, so that there is time for another server.
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
// A resumption has one weakness. A follower matches the leader's validations with handshakes by the session alone, so that
// the validation for a handshake that was abandoned may answer a later one. Then confirmed and carried are later than
// what the leader knows, by the time between the two handshakes. What bounds that is agreed, which a resumption does not
// renew.
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
// If the next server takes as long, it is the quorum that is slow, and reconnecting would only begin the wait anew. So the
// time that an answer may take doubles with each cut, and stays twice that of the last write. Meanwhile requests are
// sent on at the same pace, as carried is only as recent as they are close. A long request or reply that moves
// on is a sign of life, too, though zk.Conn gives it two thirds of T in all. And just before trust runs out the session is resumed, as
// the leader takes part in that: it renews confirmed and carried, though not agreed. A quorum that takes a quarter
// of T for each write loses nothing.
//
// The assumptions are these. The timeout is two ticks or more, as servers demand unless minSessionTimeout is set lower
// than that. Clocks run at the same rate to within a few percent over one timeout; they need not agree. The leader's
// pings reach a connected follower at most T/12 late. (A server behind an observer master reports in two hops, of half a
// tick each: ask for timeouts of four ticks or more there.) A follower may lose the report of one contact in millions, if
// that arrives while it collects its reports. The next contact, a twelfth of T later, makes up for it.
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
//   - However many wait for one node, the server has one watch on it for each session, or two, and waits that were given
//     up leave nothing behind once the node is gone.
//   - What a session has read about another contender's node it never writes down for others: it may be out of date.
//
// # The next in line
//
// A contender of a [Line] waits for one node. That this node is gone does not say that nothing else is ahead: its contender
// may have given up. Listing the line again would tell, but costs a round trip and as many bytes as there are contenders, at
// the very moment at which all of them wait. A holder, however, knows that nothing is ahead of it, and as numbers only grow
// nothing ever will be. So it releases with a transaction that
//
//	creates  <its node>-passed
//	deletes  <its node>-passed
//	deletes  <its node>
//
// The first of these is the release marker. The next waiter watches for its creation as well as for the end of the node. A
// server tells of events in the order in which things have happened. So the waiter hears of the creation right before the
// deletion. If its own node is untouched and all of that came over one connection, it holds without another request.
// The marker is never seen, as a transaction is executed as one. It uses up a number of the sequence, which ends after two
// thousand million. A waiter with one node ahead needs no marker: it is enough that this node is gone. (A node that is
// converted is changed first, so that its waiters hear of that and not of its end.)
//
// If the node goes in another way there is no marker, and the waiter lists the line: the contender died, gave up, was deleted
// by an operator, or belongs to another library. The waiter also lists after a reconnect, when events may have been missed.
//
// Its watch for the marker would then stay, as no other client makes that marker. So the session removes it, by a request that
// its server answers alone. No other client learns of that. zk.Conn does not know these watches: a watch that is set over one
// connection ends with it, and is not set again over the next. A server before ZooKeeper 3.5 cannot remove watches. A session
// that has met such a server lists the line from then on.
//
// In the benchmark of this module a hand-over takes 1.2 to 1.4 times the floor, which is a plain delete and the event of
// it, on one server on loopback. With a millisecond of network it takes 1.05 to 1.1 times the floor.
//
// The requests, beside those of the contender's own node:
//
//	contended cycle           a listing, 2 nodes read, 1 marker watched for, and nothing after the release
//	predecessor gone without  1 watch removed, a listing, 1 node read; 1 marker watched for if more than one is ahead
//	wait that is given up     nothing, and 1 watch removed if the predecessor goes without its marker later
//
// # Failure
//
// A process that is stopped between looking at Err and acting on it acts late: nothing local can prevent that. Let
// the resource that is protected compare [Grant.Token], or put [Grant.Check] in front of a transaction of ZooKeeper.
// An ensemble that has lost its data knows neither its locks nor the numbers that tokens come from. An ACL that
// forbids a client to delete its own nodes leaves them there until its session ends.
//
// Errors of the server are returned as zk.Conn has them. It has no values for some codes, and returns a text for these:
// "unknown error: -125" if a quota of the ensemble is exceeded, for example.
package protocol
