// Package recipestest tests code that uses ZooKeeper: ours, and yours.
//
// A test gets a ZooKeeper inside its own process, clients, a path of its own, and a network that it
// may break:
//
//	func TestWorkerGivesUpWhenItLosesItsLock(t *testing.T) {
//		t.Parallel()
//		server := recipestest.Start(t)
//		link := server.Link(t)
//		worker := NewWorker(link.Client(t), server.Root(t))
//		...
//		link.Stall() // the worker's packets vanish; those of other clients arrive
//		...
//	}
//
// Nothing needs closing. The same test runs against a real ZooKeeper when [Start] is replaced with
// ensemble.Real of package recipestest/ensemble.
//
// # Faults
//
//   - [Link.Cut] is noticed by both sides: connections are reset, and dialing is refused.
//   - [Link.Stall] is noticed by neither side: packets vanish while sockets stay open.
//     [Link.StallRequests] and [Link.StallReplies] do that in one direction.
//   - [Link.LoseReply] lets the server execute a request and drops the answer.
//   - [Link.Fail] and [Link.FailPart] let the server refuse a request.
//   - [Link.Delay] adds latency.
//   - [Link.Isolate] imitates a server that has lost its leader: it answers pings and nothing else.
//   - [Link.Move] leads to a follower that may lag, so clients read an older state. With [Lagging]
//     all clients are connected to such followers, as in an ensemble.
//   - [Server.Followers] can be stopped, isolated or made to lag one by one. With [WithFollowers]
//     the connect string names them, and clients go on at another follower.
//   - [Server.ExpireSession] ends a session behind the client's back.
//
// [Link.At] runs any of these at a given packet, so that a loop meets an operation at each of its
// steps, and [Link.Meet] says which packet that is. [Server.Names] is a name service, for servers
// that move and names that do not resolve. A test that waits for [Link.Sent] or [Link.Answered] need not sleep.
//
// # Virtual time
//
// [Bubble] runs a test in virtual time: go-zookeeper and everything above works in a
// testing/synctest bubble, with a server started [WithInMemory]. Minutes of pings, silence, expiry
// and reconnect pass in milliseconds, and timing is exact.
//
// The race detector of Go before 1.27 may crash, with a failed CHECK or a SIGSEGV of
// ThreadSanitizer, when two goroutines of a bubble at the same time look at a timer's channel that
// is due, or set a time.AfterFunc that is: see https://go.dev/issue/78156. The recipes set no timer
// that is due at once, such as time.After(0). A test that sets one is safe with GOMAXPROCS=1.
//
// # TLS and credentials
//
// A server started [WithTLS] or [WithMutualTLS] speaks TLS with all clients, and links work as
// before. Programs that bring their own dialer use [Server.TLSConfig], and [Link.DialTLS] over a
// link. Digest credentials need no option: protocol.WithAuth and zk.Conn.AddAuth work as with a
// real server.
//
// # Guarantees
//
// Each test that has used a [Server] is checked when it ends, after its own clean-up functions and
// whatever the state of its links. It fails
//   - if an ephemeral node is left below one of its paths ([Server.Root]) while its clients are
//     still open, because such a node blocks other clients;
//   - if a goroutine is left that was started by the test, or by one of its goroutines.
//
// It also fails, at once, if a session of a client of one of its links goes back in time, as
// described at [Link.Client].
//
// A goroutine of the test's own is reported after two seconds. The checks wait longer, up to half a
// minute, only while clients and recipes finish in the background, and for nodes whose session may
// still expire. In a test that has failed already, leftover nodes are only logged, and goroutines
// are not looked for.
//
// Parallel tests are told apart. Goroutines carry a profiler label, which replaces labels that the
// test's goroutine may have had. So a test must first use this package on its own goroutine. The
// check leaves out goroutines that the test started earlier, and goroutines of package
// initialisation and of other tests.
//
// A Link loses, repeats and reorders nothing unless it is told to.
//
// Not promised: that the embedded server is ZooKeeper in every respect (recipestest/embedded says
// where it is not), and that a Link is TCP. Faults fall between packets, never within one, and
// writes never block.
//
// # Cost
//
// A server, a path and the checks at the end of a test together take about a millisecond. The
// checks are a handshake with the server and a goroutine profile. A Link adds three goroutines to
// each connection, and some microseconds to each round trip.
package recipestest
