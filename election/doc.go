// Package election elects one leader among the candidates of a replicated service.
//
//	e := election.New(client, "/services/billing/leader")
//	err := e.Run(ctx, []byte("http://10.0.0.7:8080"), func(ctx context.Context, t *election.Term) error {
//		return serve(ctx, t.Token()) // until ctx ends, which it does if the term is lost
//	})
//
// The others learn from [Election.Leader] where the leader is, or follow it with [Election.Observe].
//
// A leader is who holds a lock: an Election and a lock.Mutex at one path are the same thing, and the locks of other
// libraries that package lock names are in the same line. Candidates are ephemeral sequential
// nodes, the first one leads, each other one watches the one before it, and the data of a candidate's node is its value.
// The algorithm is that of the ZooKeeper documentation's recipes for locks and leader election.
//
// # Guarantees
//
//   - At most one [Term] of an election has an Err of nil at any time: a leader that is cut off, expired or deposed knows
//     of it before the next one is elected. (Deposed by an operator it is told within one message.)
//   - A leader whose connection breaks keeps its place, and leads on if it comes back before its session can no
//     longer be trusted: two thirds of the session timeout.
//   - Candidates are elected in order of arrival, but for [Term.ResignTo]. A resignation wakes the next one alone. It
//     leads after one notification.
//   - Tokens increase from leader to leader.
//   - A term belongs to the node and the session that it was won with. What an earlier session left behind is never
//     taken for it, and a reconnect neither deletes nor creates a node.
//   - [Election.Run] calls its function again only after the last call has returned and that term's node is given up.
//
// A leader that dies is succeeded when its session expires: its timeout after it was last heard of, rounded up to the
// server's tick, and the time of one notification and one listing. One that resigns is succeeded after a notification.
//
// # Failure
//
// A process that is paused after it has looked at its term, and acts when it runs again, acts as a leader that it is no
// longer. Pass [protocol.Grant.Token] along with what you write to whoever can refuse an older one, or, if you write to
// ZooKeeper, put [protocol.Grant.Check] in front. A function given to Run that does not return when its context ends
// holds up its own process, and no other one if the term was lost.
//
// Observers see an election as their server does, which may lag behind, and know nothing new while they have no
// connection. Candidates whose session was lost stand at the end of the line, and so do those whom ResignTo
// passed over.
package election
