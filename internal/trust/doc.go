// Package trust says when a session may no longer be trusted: it does arithmetic on times, and
// nothing else. A [Trust] is told when requests were sent and answered, and by whom. It knows until
// when no other client can have been granted what the session holds.
//
// With T for the granted timeout, the deadline is the earliest of
//
//	confirmed + 2/3 T     confirmed: the send time of the latest request that the leader answered
//	carried  + 11/12 T    carried:   the send time of the latest request that the leader is certain to know about
//	agreed   + 11/12 T    agreed:    the send time of the latest request that a quorum agreed to
//
// # Why that is sound
//
// A follower's reports. The leader expires a session no earlier than T after the last contact that
// it knows about. It knows about a contact at once if the session is connected to the leader
// itself, is opened, or moves to another server: then the leader has to validate it. Otherwise the
// follower notes the contact when a request arrives. It tells the leader in its answer to the
// leader's next ping, which comes every half tick. A timeout is two ticks of the leader's or more, so
// that is at most T/4 later, or T/3 if the ping is a little late.
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
// Which answers count. Only an answer that takes a quorum renews agreed: see [WitnessOf]. A member
// may refuse a write by itself, and the header of a Multi says nothing of the refusal in its body.
// The write that is made for this purpose alone needs no permission, so that no member can refuse it.
//
// Resumptions. A follower matches the leader's validations with handshakes by the session alone. So
// a validation for a handshake that was abandoned may answer a later one. Then confirmed and
// carried are later than what the leader knows, by the time between the two handshakes. agreed
// bounds that, because a resumption does not renew it, but not to the moment: the leader does not
// note a write as a contact. Take a handshake that is abandoned at one follower, a resumption at
// another one with a write behind it, and a third handshake, at the first follower, which the first
// validation answers. Then the leader knows about the resumption, and agreed is later than that by
// the time until the write, up to an eighth of T, of which the reserve covers two thirds. It takes all
// three within one T, and a follower that reports nothing in between.
//
// Assumptions:
//
//   - The timeout is two ticks of the leader or more, as servers demand unless minSessionTimeout is
//     set lower. Members should have the same tickTime: a follower demands two of its own.
//   - Clocks run at the same rate to within a few percent over one timeout. They need not agree.
//   - The leader's pings reach a connected follower at most T/12 late. A server behind an observer
//     master reports in two hops of half a tick each: ask for timeouts of four ticks or more there.
//   - A follower may lose the report of one contact in millions, if it arrives while the follower
//     collects its reports. The next contact, an eighth of T later, makes up for it.
package trust
