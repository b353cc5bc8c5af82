// Package doublebarrier has a barrier that n members enter together and leave together, round after round.
//
//	b := doublebarrier.New(client, "/barriers/batch", 7)
//	e, err := b.Enter(ctx) // waits for seven
//	if err != nil {
//		return err
//	}
//	work, cancel := e.Context(ctx) // cancelled if the place is lost
//	defer cancel()
//	…
//	err = e.Leave(ctx) // waits until all seven have left
//
// or [Barrier.Do] around a function that gets such a context.
//
// The members are ephemeral nodes below the node "process" of the barrier's path. The name of a member says what n it
// expects, and is never used again. The gate is the node "ready" beside process, never counted as a member, with another
// node that seals it. Both are ephemeral nodes of the member that opened the gate.
//
// Which gate is open also stands in the data of process, which last as long as one of the members. So a round goes on when
// the opener's session ends. Data of others that were found in process are kept in front of ours, and must not be changed
// during a round. They are as they were when the round is over, or, if the opener's session has ended before that, when
// the next member comes. Other nodes below process are ignored.
//
// The path cannot be shared with Curator's DistributedDoubleBarrier, which takes process for a member. Enter refuses a path
// whose process does not exist yet and that has members of Curator's, and one that has a ready which is not ours.
//
//	joined ──── the gate counts it ────▶ in ──── Leave ────▶ waits for the others ────▶ out
//	   │                                 │
//	   │ ctx ends, or a round is full    │ its session is lost
//	   ▼                                 ▼
//	withdrawn                          lost: to the others it has left
//
// # Guarantees
//
//   - Either all n members of a round are let in, or none is. They are counted and the gate is opened in one transaction,
//     and a member withdraws by a deletion that the server refuses once it was counted.
//   - An error of [Barrier.Enter] that wraps that of its ctx, and not [protocol.ErrUncertain], says that no round has
//     counted the call or ever will. One whose ctx ends too late for that enters.
//   - Who was counted enters, however fast the others leave, and however its connection fared meanwhile: they wait for it.
//   - A round begins when nobody is left of the one before: no member laps another. A removal of a gate means that gate, and
//     does not hit a later one, whenever it arrives.
//   - A member that dies before the gate leaves the others waiting for another one to come; after it, it counts as one
//     that has left. It is dead when its session has ended. A gate whose members are all dead is removed by whoever comes.
//   - [Entry.Leave] returns nil only when all members of its round have left or died.
//   - Members that disagree about n do not wait for each other, and no round has members with different n. The first in
//     line decides; the others get [ErrSize] when they come, and none of their nodes stays.
//   - No Enter and no Leave leaves anything behind but the empty nodes of the path, which are containers. Of a round whose
//     members have all died nothing else is left either, once their sessions have ended. (Servers before 3.5 have no
//     containers, and do not remove the path. No server removes a container that never had a child.)
//
// To enter costs a member five round trips and one event when it waits, and the last of them the same number without the
// event. To leave costs three and one event, and the last few a few more. Neither depends on n, but for the one listing
// and the one transaction of the last who enters, which have n names. The first members at a path that is new, or
// that had another n, need up to two writes and a listing more.
//
// # Failure
//
// A member whose session is lost before it has heard of its gate joins again. If a round has counted it meanwhile and is
// over, there is no trace of that: the others have seen it as a member that died, and it takes part in the next round.
// Members that keep count of rounds should compare [Entry.Token], which is the same for all members of a round.
//
// If the opener's session ends before the round does, members of a round of more than five may leave up to a third of a
// session timeout later than they could.
//
// Deleting ready or the seal by hand does not end a round. Changing the data of process does, for those who wait in Leave.
// Deleting a member's node by hand has the same effect as the member dying. A process that is paused inside cannot hear that it
// counts as dead: see [Entry.Err].
package doublebarrier
