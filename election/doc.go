// Package election elects one leader among the candidates of a replicated service.
//
//	e := election.New(client, "/services/billing/leader")
//	err := e.Run(ctx, []byte("http://10.0.0.7:8080"), func(ctx context.Context, t *election.Term) error {
//		return serve(ctx, t.Token()) // until ctx ends, which it does if the term is lost
//	})
//
// The others learn from [Election.Leader] where the leader is, or follow it with
// [Election.Observe]. A program that wants callbacks instead takes part with [Election.Listen], and
// a handler asks [Election.Leading].
//
// Leadership is a lock: an Election and a lock.Mutex at one path are the same thing, with one line
// and one order, and exclude each other. The locks of other libraries that package lock names share
// the line. So do the contenders of other recipes at the path, which count as candidates.
// Candidates are ephemeral sequential nodes: the first one leads, and each other one watches its
// predecessor. The data of a candidate's node is its value. The algorithm is that of the ZooKeeper
// documentation's recipes for locks and leader election.
//
// # Guarantees
//
//   - At most one [Term] of an election has an Err of nil at any time. A leader that is cut off or
//     expired learns of it before the next one is elected. A leader that an operator deposes learns
//     of it within one message.
//   - A leader whose connection breaks keeps its place. It leads on if the connection comes back
//     while its session can still be trusted: for 5/12 of the session timeout or more, or for a
//     quarter if its term has just begun.
//   - Candidates are elected in order of arrival, but for [Term.ResignTo]. A resignation wakes only
//     the next candidate, which leads after one notification.
//   - Tokens increase from leader to leader.
//   - A term belongs to the node and the session that it was won with. A node left by an earlier
//     session is never taken for it, and a reconnect neither deletes nor creates a node.
//   - [Election.Run] calls its function again only after the last call has returned and that term's
//     node is given up.
//   - [Election.Listen] calls its function in order, one call at a time, and not after it has
//     returned. Between two terms it always tells of the end of the first.
//
// A leader that resigns is succeeded after one notification. A leader that dies is succeeded when
// its session expires, and one notification and one listing later. The session expires its timeout
// after the server last heard of it, rounded up to the server's tick.
//
// # Failure
//
// A process may be paused between checking its term and acting. When it resumes, it acts without
// leading. Pass [Term.Token] with each write to a resource that refuses older tokens. In a write to
// ZooKeeper, put [Term.Check] first.
//
// A function given to Run that does not return when its context ends holds up its own process. It
// holds up no other process if the term was lost. The same holds for a function given to Listen
// that blocks.
//
// Observers see an election as their server does. That server may lag behind, or not know that its
// leader was deposed. Without a connection they learn nothing new. Candidates whose session was
// lost join again at the end of the line, and so do those that ResignTo passed over.
package election
