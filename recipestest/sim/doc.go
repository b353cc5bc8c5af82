// Package sim finds the schedules of faults under which code on top of
// ZooKeeper goes wrong.
//
// A simulation is some clients that do what they do in production, over the
// real client library, against an embedded server, in virtual time: a minute
// passes in some milliseconds. A seed draws what befalls them, and what they
// do as far as they ask it. Histories of what they saw are checked afterwards:
//
//	func TestSimReports(t *testing.T) {
//		sim.Run(t, func(w *sim.World) {
//			held := w.Exclusive("the lock")
//			for _, c := range w.Clients(3) {
//				m := lock.New(c.Client, w.Path)
//				c.Go(func(ctx context.Context) error {
//					called := time.Now()
//					lease, err := m.Lock(ctx)
//					if err != nil {
//						return err
//					}
//					turn := held.Begin(c, called, lease)
//					turn.Keep(c.Upto(w.Timeout)) // or your own work, with turn.Holds in between
//					return turn.End(lease.Unlock(ctx))
//				})
//			}
//		})
//	}
//
// [Run] plays one seed after the other for some seconds, and stops at the first
// that fails. It then prints what befell whom and when, and which part of that is enough, the command that plays
// this seed again, and the file with a timeline to look at. [Find] returns
// the failure instead, for a test that a check would notice a certain bug.
//
//	go test ./... -run Sim                         five seconds for each simulation, one with -short;
//	                                               the seeds are 1, 2, 3 and so on
//	go test ./pkg -run Sim -sim.for=1h -timeout=0  an hour for all of a package together, with other
//	                                               seeds each time; without -timeout they stop in
//	                                               time for its ten minutes
//	go test ./pkg -run Sim -sim.seed=42            that seed, again and again
//	go test ./pkg -run Sim -sim.out=dir            where timelines are written; by default to the
//	                                               directory of -artifacts, or that for temporary files
//
// The packages come first, as the go command takes for packages only what comes before flags that it does not know.
//
// # What is checked
//
// In each world, besides its histories: that no session of a client goes back in time, as
// [recipestest.Link.DialStrict] has it; that every client's work ends, without an error; that
// [World.Finally] succeeds once the networks are whole; and that no ephemeral
// node, no watch and no goroutine is left behind then.
//
// # What is simulated
//
// See [Kind]: networks that break so that one side or both notice or nobody
// does, lost replies, latency, a connection that takes over a session a second
// time, sessions that end by force, servers that restart, lose their leader, or lag behind it,
// operators, and processes that stand still.
//
// A process that stands still is one whose packets do: those it sends leave
// when it runs on, those it is sent are read then, and dialing takes as long. Its
// goroutines cannot be held, so its timers run on; which is why a simulation
// must not look at its leases meanwhile. [Client.Sleep], [Client.Awake] and all
// methods of histories see to that by waiting until it runs on. What
// happens between a look at a lease and an act that follows without any of these
// is not interrupted: put [Client.Awake] there to have it so, as a real
// process could stand still at that point, too.
//
// There is one leader, and a follower for each client, which it dials three times out of four, and the leader otherwise. A
// follower that lags shows its client what was, and answers writes and syncs as much later as it lags behind; the
// client may move between it and the leader meanwhile, and is turned away where less is known than it has seen.
// [CutTwice] has that happen at the moments that matter: while a client sets its watches, and right after it has made a
// node. What
// else a follower does, and what not, is told by [embedded.Follower]: above all, it tells its leader at once of the
// sessions that are alive.
//
// A server that has lost its leader answers pings, and nothing else: reads are
// not answered from a stale view. Clocks are all the same one, and
// run at the same rate. Within one client goroutines race as the scheduler has
// it, and packets are neither doubled nor reordered.
//
// In a bubble time stands still while a goroutine waits for a sync.Mutex or a sync.Once, or for
// something outside of it. Who sleeps while holding a mutex that somebody else wants is stuck there, for good;
// after a minute of that the seed is printed.
//
// # Replay
//
// A seed decides on all faults and their times to the nanosecond, on latencies,
// on the pace of retries, and on everything that is drawn from [World.Rand] and [Client.Rand]. It does
// not decide on the order of goroutines that can run at the same instant, which is rarely one between
// two clients, as no two have the same latency; nor on the pauses between attempts to connect
// again, which package protocol draws for itself. Seven of ten replays were the same to the nanosecond.
// Hence -sim.seed plays a seed until it fails, or the time is over.
//
// # Cost
//
// A schedule takes some milliseconds. Most of that is zk.Conn clearing its buffers, four
// megabytes for a client and one and a half for each time that it connects again; then the scheduler. While
// simulations run, the garbage collector is told to come at most when the heap has grown elevenfold.
// With GOMAXPROCS=1 a schedule costs a quarter less than with 2, so a long search is best one such process for each core.
// Simulations run in parallel with each other, so a test must not call t.Parallel itself.
package sim
