// Package recipestest tests code that uses ZooKeeper: ours, and yours.
//
// A test gets a ZooKeeper inside its own process, clients, a path of its own,
// and a network it may break:
//
//	func TestWorkerGivesUpWhenItLosesItsLock(t *testing.T) {
//		t.Parallel()
//		server := recipestest.Start(t)
//		link := server.Link(t)
//		worker := NewWorker(link.Client(t), server.Root(t))
//		...
//		link.Stall() // the worker's packets vanish; everybody else's arrive
//		...
//	}
//
// Nothing needs closing. The same test runs against a real ZooKeeper when
// [Start] is replaced with ensemble.Real of package recipestest/ensemble.
//
// # Faults
//
// [Link.Cut] is what both sides notice: connections reset, dialing refused.
// [Link.Stall] is what nobody notices: packets vanish while sockets stay open,
// in both directions or in one. [Link.LoseReply] lets the server execute a
// request and the client never learn of it. [Link.Delay] is latency. [Link.Isolate]
// is a server that has lost its leader: pings are answered, and nothing else.
// [Link.Move] leads to a server that may lag behind its leader, so that clients read what was; with [Lagging] all
// clients are connected to such servers, as they are in an ensemble.
// [Server.ExpireSession] ends a session in the client's back. [Link.At] has any
// of these happen at a given packet, so that a loop meets an operation at each
// of its steps. A test that waits for [Link.Sent] or [Link.Answered] need not sleep.
//
// # Virtual time
//
// In a testing/synctest bubble, with a server that is [InMemory], go-zookeeper
// and everything above works in virtual time: minutes of pings, silence,
// expiry and reconnect pass in milliseconds, and timing is exact.
//
// # Guarantees
//
// Each test that has used a [Server] is checked when it ends, after its own
// clean-up functions and whatever state it has left its links in. It fails
//   - if an ephemeral node stays below one of its paths ([Server.Root]) while
//     its clients are still open, for that is what blocks others;
//   - if a goroutine stays that the test has started, or that was started by one of those.
//
// It also fails, at once, if a session of a client of one of its links goes back in time: if it
// resumes saying that it has seen less than was delivered to it. See [Link.DialStrict].
//
// What is finished in the background is waited for, some seconds at most. Of a
// test that has failed already, leftover nodes are only logged, and goroutines
// are not looked at. Both checks tell parallel tests apart. Goroutines are told apart by
// a profiler label, which replaces labels that the test's goroutine may have had;
// so a test must first use this package on its own goroutine, and goroutines
// that it started before, or that package initialisation or another test has started, are
// not its own.
//
// A Link loses nothing, repeats nothing and reorders nothing but as told.
//
// Not promised: that the embedded server is ZooKeeper in every respect
// (recipestest/embedded says where it is not), and that a Link is TCP: faults
// fall between packets, never within one, and writing never blocks.
//
// # Cost
//
// A server, a path and the checks at the end of a test, which are a handshake
// with the server and a goroutine profile, together take about a millisecond.
// A Link adds three goroutines to each connection, and some microseconds to each round trip.
package recipestest
