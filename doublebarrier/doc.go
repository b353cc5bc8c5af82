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
// The members are ephemeral nodes below the node "process" of the barrier's path, and the gate is the node "ready" beside
// that, never counted as one of them. What else is below process is ignored. Nothing is written to data of others.
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
//   - No Enter and no Leave leaves anything behind but the empty nodes of the path, which are containers.
//
// To enter costs a member five round trips and one event when it waits, and the last of them the same number without the
// event. To leave costs three and one event, and the last few a few more. Neither depends on n, but for the one listing
// and the one transaction of the last who enters, which have n names.
//
// # Failure
//
// A member whose session is lost before it has heard of its gate joins again. If a round has counted it meanwhile and is
// over, there is no trace of that: the others have seen it as a member that died, and it takes part in the next round.
// Members that keep count of rounds should compare [protocol.Grant.Token], which is the same for all members of a round.
//
// Who deletes the gate of a round by hand ends that round for those who wait in Leave. Who deletes a member by hand has
// killed it. All members have to agree about n; if they do not, each round has as many as the one that opens its gate
// thinks. A process that is paused inside cannot hear that it counts as dead: see [protocol.Grant.Err].
package doublebarrier
