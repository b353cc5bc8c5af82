// Package election elects one leader among the processes of a replicated service.
//
//	e := election.New(client, "/services/billing/leader")
//	err := e.Run(ctx, []byte("http://10.0.0.7:8080"), func(ctx context.Context, t *election.Term) error {
//		return serve(ctx, t.Token()) // until ctx ends, which it does if the term is lost
//	})
//
// Other processes ask [Election.Leader] for the leader's value (such as its address) or follow it
// with [Election.Observe]. A request handler asks [Election.Leading]. [Election.Listen] is for
// programs that want a callback.
//
// Leadership is a lock: an Election and a lock.Mutex at one path share a line and exclude each
// other. The locks of other libraries that package lock names share it, too, and contenders of our
// other recipes count as candidates. A candidate is an ephemeral sequential node with its value as
// data. The first one leads and each other one watches its predecessor.
//
// # Guarantees
//
//   - At most one [Term] of an election has an Err of nil at any time. A leader that is cut off or
//     expired finds out before the next leader is elected. If an operator deletes its node, it
//     finds out when the server's event arrives.
//   - A leader whose connection breaks keeps its place and leads on if the connection comes back
//     in time: within 5/12 of the session timeout (or a quarter, if its term has just begun).
//   - Candidates are elected in order of arrival, except by [Term.ResignTo]. A resignation wakes
//     only the next candidate.
//   - Tokens increase from leader to leader.
//   - A term belongs to one node and one session. A node of an earlier session is never taken for
//     it, and a reconnect neither deletes nor creates a node.
//   - [Election.Run] calls its function again only after the last call has returned and that term's
//     node is given up.
//   - [Election.Listen] calls its function in order, one call at a time, and not after it has
//     returned. It always reports the end of a term before it reports the next term.
//
// A leader that resigns is succeeded after one notification. A leader that dies is succeeded when
// its session expires (its timeout after the last contact, rounded up to a tick of the server).
//
// # Failure
//
// A process can stop between a look at its term and its next step and act a minute later without
// leading. Write to ZooKeeper with [Term.Multi]. Pass [Term.Token] with each write to another
// store, and let the store refuse a token that is smaller than the greatest it has seen.
//
// If a function given to Run doesn't return when its context ends, this process can't stand again.
// Other processes are not held up once the term is lost. The same holds for a function given to
// Listen.
//
// Observers see an election as their server does. That server can lag behind, or follow a deposed
// leader. Candidates whose session is lost join again at the end of the line, and so do candidates
// that ResignTo passed over.
//
// Curator's LeaderLatch doesn't wait for our candidates: it leads as soon as no other latch is
// ahead. A candidate that sees a LeaderLatch behind it gets [protocol.ErrMixed]. But a leader
// doesn't see a LeaderLatch come, and nor does the candidate that it lets in when it resigns. (A
// leader would have to list all candidates whenever one comes or goes, in every fleet, and would
// still find out only after the latch leads. A candidate would lead one request later.) So don't
// start a LeaderLatch while a Term may be held. Curator's LeaderSelector waits for our candidates.
package election
