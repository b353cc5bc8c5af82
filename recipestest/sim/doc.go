// Package sim searches for schedules of faults under which code on top of ZooKeeper goes wrong.
//
// In a simulation, clients work as in production: with the real client library, against an embedded
// server, in virtual time (a minute passes in milliseconds). A seed draws the faults, and choices
// of the clients if they ask for them. Afterwards the world checks the histories that the clients
// have recorded:
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
// [Run] plays some seeds one after the other, and stops at the first failure. It prints the faults,
// the part of the schedule that is enough, the latest packets of its clients, the command that
// replays that part, and the name of a file with a timeline. [Find] returns the failure instead,
// for a test which shows that a certain bug would be found.
//
//	go test ./... -run Sim                         the seeds from 1 to 20 of each simulation, or
//	                                               to 5 with -short
//	go test ./pkg -run Sim -sim.for=1h -timeout=0  an hour for all of a package together, with
//	                                               random seeds; without -timeout=0 they stop
//	                                               before the ten minutes of go test have passed
//	go test ./pkg -run Sim -sim.seeds=500          the seeds from 1 to 500, however long that takes
//	go test ./pkg -run Sim -sim.seeds=500 -sim.from=70001
//	                                               as many others
//	go test ./pkg -run Sim -sim.seed=42            that seed, again and again
//	go test ./pkg -run Sim -sim.seed=42 -sim.only='clients=1:2,3 faults=0,4@1.5s+200ms'
//	                                               part of it: see below
//	go test ./pkg -run Sim -sim.out=dir            write timelines to dir; the default is the
//	                                               directory of -artifacts, or a temporary one
//
// Name the packages first, because the go command takes nothing after an unknown flag for a
// package. Instead of flags you can set ZKRECIPES_SIM_FOR, ZKRECIPES_SIM_SEED, ZKRECIPES_SIM_ONLY,
// ZKRECIPES_SIM_SEEDS, ZKRECIPES_SIM_FROM and ZKRECIPES_SIM_OUT. These variables also work if some
// packages have no simulations (and so don't know the flags):
//
//	ZKRECIPES_SIM_FOR=10m go test ./... -run Sim
//
// # What is checked
//
// Each world checks its histories. It also checks
//
//   - that no session of a client goes back in time (see [recipestest.Link.Client]);
//   - that the work of every client ends without an error;
//   - that [World.Finally] succeeds once the networks are whole;
//   - that no ephemeral node, watch or goroutine is left then.
//
// The world knows what its clients hold from their events ([protocol.EventAcquired], EventReleased
// and EventLost), even if the program hides its lock from the histories. It fails if two clients
// hold the same lock, leadership or write lock at once by their own events. It also fails if a
// client is late to notice that the server has ended its session, or that an operator has deleted
// its node. (Without another fault in the way, the client has four round trips and 100 ms.)
//
// Events have the path that was given to the recipe. If one path means several locks (below
// different chroots), give these views their own observer with [protocol.WithObserver]. The world
// then ignores their locks. It also ignores processes that get an observer as an option of
// [World.Processes].
//
// If no fault hits a client that holds something, a schedule is vacuous. A log line counts vacuous
// schedules, and [Run] fails if at least five schedules were played and all were vacuous. With -v
// it also prints, for each kind of fault, how often it was drawn, how often it struck, how often
// its client held something then, and how often that was lost.
//
// # What is simulated
//
// [Kind] lists the faults. Networks break so that one side, both sides or neither side notices.
// Replies are lost, and latency grows. A second connection takes over a session. Sessions are ended
// by force. Servers restart, lag, or lose their leader and go on answering reads. They can believe
// that they are the leader, report sessions late, let sessions end early, or ask to try again.
// Operators delete nodes, and processes stand still.
//
// A deposed leader answers syncs from an old state, as in ZooKeeper. Leave [Deposed] out of a
// simulation that relies on syncs.
//
// A process can die if [World.Processes] made it: its packets don't pass any more, and a successor
// starts. A connection can end in the middle of a packet.
//
// A process stands still when its packets do. Packets that it sends leave when it goes on, packets
// to it are read then, and dialing takes as long. But its goroutines can't be stopped, and its
// timers run on, so a simulation must not look at its leases meanwhile. [Client.Sleep],
// [Client.Awake] and all methods of histories wait until the process goes on. Between a look at a
// lease and the action that follows, a real process could stand still too, so put [Client.Awake]
// there.
//
// There is one leader, and one follower for each client. A client dials its follower three times
// out of four, and otherwise the leader. A follower that lags shows its client an older state, and
// answers writes and syncs later (by its lag). The client can move between follower and leader
// meanwhile. A server that is behind the client refuses it. [embedded.Follower] says what followers
// don't do.
//
// All clients have the same clock, and it never jumps. The servers' clock can run faster (as a
// client with a slow clock would see it). The goroutines of one client race as the scheduler lets
// them. Packets are neither doubled nor reordered.
//
// In a bubble, time stands still while a goroutine waits for a sync.Mutex, a sync.Once, or
// something outside the bubble. If a goroutine sleeps while it holds a mutex that another goroutine
// waits for, both hang for ever. After five minutes on the wall clock, the process prints the seed
// and all its goroutines, and ends.
//
// # What is drawn
//
// Faults at random times rarely hit the few packets at which code is vulnerable. So the draws have
// a shape:
//
//   - A seed draws up to eight faults in the first six session timeouts, and more of them early.
//   - Every other seed uses one kind of fault, and each kind has its turn. Such a seed has one to
//     four faults, half of which outlast a session. Half of the other seeds use one to three kinds,
//     because a few kinds get further than all together.
//   - At least half of the clients' faults are aimed: the fault waits for a client that calls
//     [Turn.Keep] for about as long as the fault lasts. If there is no history, it waits for any
//     client that holds something by its events, and strikes soon. An operator prefers nodes of
//     clients that hold something.
//   - A fault lasts up to a twentieth, a half, one or three session timeouts, with equal
//     probability. So some faults end before any client notices, and others outlast every session.
//   - A follower lags by up to a session timeout, but mostly less, so that requests are answered
//     while their client still waits.
//   - [CutTwice] is aimed, and drawn earlier and three times as often as other kinds. It cuts the
//     connection of a client at one of its packets, and again soon after the client has connected
//     again. The first cut hits one of the next packets, or a packet after the client has created a
//     node. The second cut can also hit a packet after the client has set its watches again. In
//     half of the draws the client has read everything before that packet; in the others its last
//     answers can be lost. The client goes on at the leader after the first cut, and at its lagging
//     follower after the second. Such a session must remember everything it has seen, and which
//     watches were set again.
//   - In half of its connections, a client sends the requests of waiting calls before it sets its
//     watches again (as can happen on a busy machine).
//
// # Replay
//
// A seed decides all faults and their times (to the nanosecond), latencies, the pauses between
// retries, and everything drawn from [World.Rand] and [Client.Rand]. It doesn't decide the order of
// goroutines that can run at the same instant. (That is rarely an order between two clients,
// because no two have the same latency.) It doesn't decide the pauses between attempts to connect
// either, because package protocol draws these itself. Seven of ten replays were the same to the
// nanosecond. So -sim.seed plays a seed until it fails or time is up.
//
// A failure is shrunk by up to 300 replays in 20 seconds (10 replays with -short). Each replay
// leaves out a fault, a client or some turns of a client, makes a fault shorter, or moves it to a
// rounder time. It counts if the
// world fails with an error of the same kind (the same first ten words, ignoring paths and words
// with digits). To be sure that the world doesn't fail only because a client does less, it must
// pass without faults.
//
// -sim.only plays the rest. In the example, client 1 works until its second turn ends, client 3
// works to the end, and the others do nothing. Faults 0 and 4 happen, the latter at 1.5s for 200ms.
// A client ends its work after a turn by ending its goroutine in [Turn.End]. Its deferred calls
// run.
//
// # Cost
//
// A schedule takes some milliseconds, mostly in the scheduler. The clients of a world have small
// buffers (requests and answers have at most 128 KiB), because clearing zk.Conn's buffers would
// take twice as long as everything else. A tenth of the time still goes into 1.5 MB that zk.Connect
// allocates before it reads its options. While simulations run, the garbage collector starts only
// when the heap has grown elevenfold. With GOMAXPROCS=1 a schedule costs a quarter less than with
// 2, so run a long search as one such process per core. Simulations run in parallel with each
// other, so a test must not call t.Parallel itself.
package sim
