// Package trust computes until when a session can be trusted. It does arithmetic on times, and
// nothing else. A [Trust] gets the times at which requests were sent and answered, and by which
// members. Until the deadline that it computes, the servers can't have granted the session's locks
// to another client.
//
// If T is the granted timeout, the deadline is the earliest of
//
//	confirmed + 2/3 T     confirmed: the send time of the latest request that the leader answered
//	carried  + 11/12 T    carried:   the send time of the latest request that the leader is certain to know about
//	agreed   + 11/12 T    agreed:    the send time of the latest request that a quorum agreed to
//
// # Why that is sound
//
// A follower's reports. The leader expires a session no earlier than T after the last contact that
// it knows about. It knows at once if the session is connected to the leader itself, is opened, or
// moves to another server (because the leader must validate it). Otherwise the follower notes the
// contact when a request arrives, and reports it in its answer to the leader's next ping. Pings
// come every half tick. Because a timeout is at least two ticks of the leader, the report is at
// most T/4 late, or T/3 if the ping is a little late.
//
// If the leader has answered a request that was sent at s, that request came down the same ordered
// connection as these reports. So the leader then knew every contact that the client had seen
// answered T/3 before s. The last of them is carried: the session can end T after it. Once a
// session has been busy for a while, carried is 3/8 T before confirmed, and the second bound is
// stricter than the first. The first bound holds young sessions to the same measure.
//
// Clock rates. A twelfth of T is kept in reserve for clocks that run at different rates. We read
// both the monotonic and the wall clock and use the clock that went further, because the monotonic
// clock stops while a machine sleeps. If the wall clock is set forward, locks are lost. If it is
// set back, nothing happens.
//
// The leader's quorum. All this is about one leader. A deposed leader that doesn't know it answers
// syncs for seconds, but no quorum agrees to its writes. A quorum elects its successor, and at
// least one member of that quorum voted for the last write before. From the election on, the
// successor gives every session a whole new T. So agreed bounds trust under any leader.
//
// Which answers count. Only an answer that takes a quorum renews agreed: see [WitnessOf]. A member
// can refuse a write by itself, and the header of a Multi doesn't show a refusal in its body. Our
// own write for this purpose needs no permission, so that no member can refuse it.
//
// Resumptions. A follower matches the leader's validations with handshakes by the session alone. So
// a validation for an abandoned handshake can answer a later handshake. Then confirmed and carried
// are later than the leader's knowledge, by the time between the two handshakes. agreed bounds
// that, because a resumption doesn't renew it. The bound isn't exact, because the leader doesn't
// note a write as a contact. For example: a client abandons a handshake at one follower, resumes at
// another follower and sends a write, and then makes a third handshake at the first follower, which
// the first validation answers. Now the leader knows the resumption, and agreed is later than that
// by the time until the write (up to T/8, of which the reserve covers two thirds). This needs all
// three within one T, and a follower that reports nothing in between.
//
// Assumptions:
//
//   - The timeout is at least two ticks of the leader. Servers enforce that, unless
//     minSessionTimeout is set lower. Members should have the same tickTime, because a follower
//     enforces two of its own ticks.
//   - Clocks run at the same rate to within a few percent over one timeout. They needn't agree on
//     the time.
//   - The leader's pings reach a connected follower at most T/12 late. A server behind an observer
//     master reports in two hops of half a tick each: ask for timeouts of four ticks or more there.
//   - A follower can lose the report of one contact in millions, if it arrives while the follower
//     collects its reports. The next contact (T/8 later) makes up for it.
package trust
