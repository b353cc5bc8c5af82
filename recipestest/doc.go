// Package recipestest tests code that uses ZooKeeper (ours, and yours).
//
// A test gets a ZooKeeper inside its own process, clients, a path of its own, and a network that it
// can break:
//
//	func TestWorkerGivesUpWhenItLosesItsLock(t *testing.T) {
//		t.Parallel()
//		server := recipestest.Start(t)
//		link := server.Link(t)
//		worker := NewWorker(link.Client(t), server.Root(t))
//		...
//		link.Stall() // the worker's packets vanish; packets of other clients arrive
//		...
//	}
//
// Nothing needs closing. To run the same test against a real ZooKeeper, replace [Start] with
// ensemble.Real of package recipestest/ensemble.
//
// # Faults
//
//   - [Link.Cut]: both sides notice. Connections are reset, and dialing is refused.
//   - [Link.Stall]: neither side notices. Packets vanish while sockets stay open.
//     [Link.StallRequests] and [Link.StallReplies] do that in one direction.
//   - [Link.LoseReply] lets the server execute a request and drops the answer.
//   - [Link.Fail] and [Link.FailPart] let the server refuse a request.
//   - [Link.Delay] adds latency.
//   - [Link.Isolate] imitates a server that has lost its leader: it answers pings and nothing else.
//   - [Link.Move] leads to a follower that can lag, so that clients read an older state. With
//     [Lagging] all clients are connected to such followers, as in an ensemble.
//   - [Server.Followers] can be stopped, isolated or made to lag one by one. With [WithFollowers]
//     the connect string names them, and clients can go on at another follower.
//   - [Server.ExpireSession] ends a session behind the client's back.
//
// [Link.At] runs any of these at a given packet, so that a loop can hit an operation at each of its
// steps. [Link.Meet] also says which packet that is. [Server.Names] is a name service, for servers
// that move and names that don't resolve. [Link.Sent] and [Link.Answered] are signals to wait for,
// so that a test needn't sleep.
//
// # Virtual time
//
// [Bubble] runs a test in virtual time: go-zookeeper and everything above work in a
// testing/synctest bubble, with a server started [WithInMemory]. Minutes of pings, silence, expiry
// and reconnects pass in milliseconds, and timing is exact.
//
// The race detector of Go before 1.27 can crash (with a failed CHECK or a SIGSEGV of
// ThreadSanitizer) when two goroutines of a bubble at the same time look at the channel of a timer
// that is due, or set a time.AfterFunc that is due: see https://go.dev/issue/78156. The recipes
// never set a timer that is due at once (time.After(0), for example). If your test does, run it
// with GOMAXPROCS=1.
//
// # TLS and credentials
//
// A server started [WithTLS] or [WithMutualTLS] speaks TLS with all clients, and links work as
// before. Programs that speak TLS themselves use [Server.TLSConfig].
// Digest credentials need no option: protocol.WithAuth and zk.Conn.AddAuth work as with a real
// server.
//
// # Guarantees
//
// Each test that has used a [Server] is checked when it ends, after its own clean-up functions and
// in any state of its links. It fails
//
//   - if an ephemeral node is left below one of its paths ([Server.Root]) while its clients are
//     still open, because such a node blocks other clients;
//   - if a goroutine is left that the test (or one of its goroutines) started.
//
// It also fails, at once, if a session of a client of one of its links goes back in time (see
// [Link.Client]).
//
// A goroutine of the test's own is reported after two seconds. The checks can wait up to half a
// minute, but only while clients and recipes clean up in the background, and for nodes whose
// session can still expire. In a test that has already failed, leftover nodes are only logged, and
// goroutines aren't looked for.
//
// Parallel tests are told apart by a profiler label on their goroutines. It replaces labels that
// the test's goroutine may have had. So a test must first use this package on its own goroutine.
// The check leaves out goroutines that the test started earlier, goroutines of package
// initialisation, and goroutines of other tests.
//
// A Link never loses, repeats or reorders packets unless a test tells it to.
//
// We don't promise that the embedded server is ZooKeeper in every respect (recipestest/embedded
// lists the differences), or that a Link is TCP: faults fall between packets, never within one, and
// writes never block.
//
// # Cost
//
// A server, a path and the checks at the end of a test take about a millisecond together. The
// checks are a handshake with the server and a goroutine profile. A Link adds three goroutines to
// each connection, and some microseconds to each round trip.
package recipestest
