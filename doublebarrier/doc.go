// Package doublebarrier has a barrier that n members enter together and leave together, round after
// round.
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
// A member that comes later, in the place of one that has died, learns from [Entry.Round] which
// round it takes part in. While members wait, [Barrier.Waiting] shows which ones have come, with
// the data that [WithData] gave them, and so which are missing.
//
//	joined ──── the gate counts it ────▶ in ──── Leave ────▶ waits for the others ────▶ out
//	   │                                 │
//	   │ ctx ends, or a round is full    │ its session is lost
//	   ▼                                 ▼
//	withdrawn                          lost: to the others it has left
//
// # Layout
//
// The members are ephemeral nodes below the node "process" of the barrier's path. The name of a
// member says what n it expects, and is never used again. Its data are those of [WithData]. The
// gate is the node "ready" beside process, never counted as a member. Beside ready is another node,
// whose name is never used again and tells this gate from later ones. Both are ephemeral nodes of
// the member that opened the gate.
//
// Which gate is open, and how many rounds there have been, also stands in the data of process, the
// record. It lasts as long as one of the members, or for good if the barrier was made
// [WithKeptRounds]. So a round goes on when the opener's session ends. If process has data of
// another client, they are kept in front of the record. Data that are written there later replace
// the record, see Failure. A record may be copied to another path or server while no member is
// there: the number of rounds goes on. Other nodes below process are ignored.
//
// The path cannot be shared with Curator's DistributedDoubleBarrier, which takes process for a
// member. Enter refuses a path that has members of Curator's and no process yet. It also refuses a
// path that has a ready which is not ours, if there is no record. Otherwise all that wait get the
// error when the last one comes.
//
// # Guarantees
//
//   - Either all n members of a round are let in, or none is. One transaction checks that they are
//     there and writes the record. A member withdraws in a transaction that the server refuses if
//     the record has changed.
//   - Rounds have consecutive numbers, from 1 on, as long as the record lasts: [Entry.Round] says
//     how long that is. [Entry.Token] grows from round to round also when numbers begin again.
//   - An error of [Barrier.Enter] that wraps its ctx's error, and not [protocol.ErrUncertain],
//     promises that no round has counted the call or ever will. If ctx ends too late for that, the
//     call enters.
//   - A counted member enters, however fast the others leave, and however its connection fared
//     meanwhile: they wait for it.
//   - A round begins when no member of the one before is left: no member laps another. The removal
//     of a gate does not hit a later one, whenever it arrives.
//   - A member that dies before the gate opens leaves the others waiting for another to come. One
//     that dies inside counts as one that has left. It is dead when its session has ended. A gate
//     whose members are all dead is removed by the next member that comes.
//   - [Entry.Leave] returns nil only when all members of its round have left or died.
//   - Members that disagree about n do not wait for each other, and no round has members with
//     different n. The first in line decides. The others get [ErrSize] when they come, and none of
//     their nodes stays.
//   - Enter and Leave leave nothing behind but the empty nodes of the path, which are containers
//     unless the barrier was made [WithKeptRounds]. Neither does a round whose members have all
//     died, once their sessions have ended. Servers before 3.5 have no containers, and do not
//     remove the path. No server removes a container that never had a child.
//
// # Cost
//
// To enter costs a member that waits two requests and one event: it creates its node, and reads the
// gate once that is open. To leave costs two requests and one event: it deletes its node, and reads
// that the round is over. In its first round at the path, a member reads the record once more. A
// member that stays for more than a moment watches its node.
//
// Neither depends on n. The gate has n names, which each client reads once in a round. The last
// member to enter lists the line, and opens the gate in a transaction with n names. The last one to
// leave closes the gate. The three before that list the members that are left, to see whether those
// have died. The first members at a path that had another n need up to two writes and two listings
// more.
//
// [Barrier.Waiting] costs its caller four requests and one for each member, and the members
// nothing.
//
// While a member waits, in Enter or Leave, it sends its session's pings and nothing else. After a
// third of a session timeout it sets one watch more, on its own node or on a member that is inside.
// The opener may set two, as it waits for the end of its round in the background as well. When the
// gate opens after a long wait, the member's session is confirmed first.
//
// # Failure
//
// A member that loses its session before it has learnt of its gate joins again. A round may have
// counted it meanwhile, and be over: of that there is no trace. The others have seen a member that
// died, and it takes part in the next round. Members should not count rounds themselves, but ask
// [Entry.Round], which is the same for all members of a round.
//
// If the opener's session ends while others leave, or four members die inside, the others may leave
// up to a third of a session timeout later than they could. A member whose node is deleted by hand
// while it waits notices that as late.
//
// Deleting ready, or the node beside it, by hand does not end a round. Setting the data of the
// latter may. Changing the data of process does, for the members that wait in Leave, and rounds
// begin with 1 again. If ready is gone as well, there is no trace of the round. Members that wait
// then join again, also those that it had counted, whose later errors wrap
// [protocol.ErrUncertain]. Deleting a member's node by hand has the same effect as the member
// dying. A process that is paused inside cannot learn that it counts as dead: see [Entry.Err].
package doublebarrier
