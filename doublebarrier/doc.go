// Package doublebarrier has a barrier that n members enter together and leave together (round after
// round).
//
//	b := doublebarrier.New(client, "/barriers/batch", 7)
//	err := b.Do(ctx, func(ctx context.Context, e *doublebarrier.Entry) error {
//		return work(ctx, e.Round()) // all seven are here; ctx ends if the place is lost
//	}) // returns when all seven have left
//
// [Barrier.Enter] and [Entry.Leave] are for work that does not fit into one function. A member that
// replaces a dead member asks [Entry.Round] which round it takes part in. [Barrier.Waiting] shows
// which members have come (with the data of [WithData]) and so which are missing.
//
//	joined ──── the gate counts it ────▶ in ──── Leave ────▶ waits for the others ────▶ out
//	   │                                 │
//	   │ ctx ends, or a round is full    │ its session is lost
//	   ▼                                 ▼
//	withdrawn                          lost: to the others it has left
//
// # Guarantees
//
//   - Either all n members of a round are let in or none. One transaction checks that they are
//     there and opens the gate. A member withdraws in a transaction that the server refuses once
//     the gate has counted it.
//   - Rounds have consecutive numbers from 1 on (for as long as [Entry.Round] says). [Entry.Token]
//     also grows when the numbers begin again.
//   - If the error of [Barrier.Enter] wraps its ctx's error and not [protocol.ErrUncertain], no
//     round has counted the call or ever will. If ctx ends too late for that, the call enters.
//   - A counted member enters, however fast the others leave and whatever happens to its
//     connection. (The others wait for it.)
//   - A round begins when no member of the last round is left. So no member laps another. Removing
//     a gate never hits a later gate.
//   - If a member dies before the gate opens, the others wait for another member. A member that
//     dies inside counts as one that has left. (A member is dead when its session has ended.) The
//     next member removes the gate of members that have all died.
//   - [Entry.Leave] returns nil only when all members of its round have left or died.
//   - Members with different n never share a round. The first in line decides. The others get
//     [ErrSize].
//   - Nothing stays but the empty nodes of the path. They are containers, so the server removes
//     them (unless the barrier was made [WithKeptRounds]).
//
// # Cost
//
// Entering costs a waiting member two requests and an event (whatever n is). So does leaving. The
// gate has n names that each client reads once in a round. The last member to enter lists the line
// and opens the gate. The last member to leave closes the gate. The three before that list the
// remaining members to see whether they are dead.
//
// While a member waits, it sends its session's pings and nothing else. After a third of a session
// timeout it sets a second watch. When the gate opens after a long wait, the member's session is
// confirmed first. [Barrier.Waiting] costs four requests and one for each member.
//
// # Failure
//
// If a member loses its session before it knows of its gate, it joins again. A round can have
// counted it and ended meanwhile, without a trace. To the others the member died. It takes part in
// the next round. So don't let members count rounds themselves. [Entry.Round] is the same for all
// members of a round.
//
// If the opener's session ends while others leave, or four members die inside, the others can be
// late by a third of a session timeout. If an operator deletes the node of a member that waits, the
// member can notice that as late. To the others it has died.
//
// A paused process cannot notice that it counts as dead: see [Entry.Err].
//
// # Layout
//
// Members are ephemeral nodes below the node "process" of the barrier's path. A member's name says
// its n and is never used again. The gate is the node "ready" beside process, with another node
// beside it that tells this gate from later gates. Both are ephemeral nodes of the member that
// opened the gate. The data of process say which gate is open and how many rounds there were. So a
// round goes on if the opener's session ends. Data of another client are kept in front of ours.
// Other nodes below process are ignored.
//
// Don't change the data of process while members are inside. Rounds then begin with 1 again and
// members that wait in Leave return. If ready is gone as well, waiting members join again and later
// errors wrap [protocol.ErrUncertain]. (While no member is there, you can copy the data to another
// path or server. Then the numbers go on.) Deleting ready by hand does not end a round.
//
// The path cannot be shared with Curator's DistributedDoubleBarrier, which takes process for a
// member. Enter refuses a path that has Curator's members and no process yet, or a ready that is
// not ours.
package doublebarrier
