package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/zkrecipes/zkrecipes/internal/session"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

// endLimit is how many session timeouts all work may take to end after the last fault.
const endLimit = 100

// maxPacket limits requests and answers. A client's buffers have this size.
const maxPacket = 128 << 10

// A World is one server, its clients, and the faults of one seed. It is a [testing.TB]: failures
// and logs belong to this seed, Cleanup functions run when the world ends, and Fatal ends the
// goroutine that calls it.
//
// The simulation sets the world up and returns. Then clients work and faults happen until all work
// is done. After that all faults are ended, [World.Finally] runs, and histories and leftovers are
// checked.
type World struct {
	*bench
	Server  *recipestest.Server
	Path    string        // for the simulation to use
	Timeout time.Duration // of sessions; all times in this world are relative to it
	Rand    *rand.Rand    // for the set-up function; goroutines use Client.Rand
	Watches int           // how many watches may be left on the server in the end

	seed      uint64
	plan      plan
	began     time.Time
	mu        sync.Mutex // protects the fields below
	clients   []*Client  // one for each place
	operator  *protocol.Client
	starting  chan struct{} // has room for the program of one starting successor
	finally   []step
	checks    []func() error
	work      *work
	over      context.Context // done when work has taken too long
	giveUp    context.CancelFunc
	record    record
	forced    forced
	disturbed []disturbance
	ends      []func() // of faults
	calmed    bool     // there are no more faults
	held      held
	numbers   int      // how many semaphores
	drawn     []Kind   // the faults that were drawn
	strikes   []strike // the faults that have happened
}

var _ testing.TB = (*World)(nil)

type step struct {
	what string
	do   func(context.Context) error
}

func newWorld(t testing.TB, seed uint64) *World {
	w := &World{bench: newBench(t), seed: seed, began: time.Now(), work: newWork(), starting: make(chan struct{}, 1)}
	w.held.open, w.held.early = make(map[holdKey][]*hold), make(map[holdKey]int)
	w.Rand = w.random(0)
	w.over, w.giveUp = context.WithCancel(context.Background())
	w.Timeout = time.Second + w.Upto(4*time.Second).Truncate(time.Millisecond)
	return w
}

// start starts the server. It can fail.
func (w *World) start() {
	// A session can end up to a tick late, so the tick differs from seed to seed.
	tick := w.Timeout / time.Duration(2+w.Rand.IntN(20))
	w.Server = recipestest.Start(w, recipestest.WithConfig(embedded.Config{
		InMemory:          true,
		TickTime:          tick.Truncate(time.Millisecond),
		MinSessionTimeout: w.Timeout,
		MaxSessionTimeout: w.Timeout,
	}))

	w.Path = w.Server.Root(w) + "/sim"
}

// random returns one of the seed's independent streams of numbers. It is safe for concurrent use.
func (w *World) random(stream uint64) *rand.Rand {
	return rand.New(&source{pcg: rand.NewPCG(w.seed, stream)})
}

// A source is a source of random numbers for goroutines of one client.
type source struct {
	mu  sync.Mutex // protects pcg
	pcg *rand.PCG
}

func (s *source) Uint64() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pcg.Uint64()
}

// Upto draws a duration from [World.Rand].
func (w *World) Upto(most time.Duration) time.Duration { return upto(w.Rand, most) }

func upto(r *rand.Rand, most time.Duration) time.Duration {
	return time.Duration(r.Int64N(max(int64(most), 1)))
}

// Clients connects n clients. Each is a process with its own network, and has faults. Call it (or
// [World.Processes]) in the set-up function.
func (w *World) Clients(n int, opts ...protocol.ConnectOption) []*Client {
	return w.connectAll(n, nil, opts)
}

func (w *World) connectAll(n int, program func(*Client), opts []protocol.ConnectOption) (all []*Client) {
	for range n {
		c := w.connect(&place{index: len(w.clients), program: program, opts: opts}, w.Server.Embedded().Follower())
		all = append(all, c)
		w.mu.Lock()
		w.clients = append(w.clients, c)
		w.mu.Unlock()
	}
	return all
}

// connect connects the next process at a place.
func (w *World) connect(at *place, follower *embedded.Follower) *Client {
	// A successor must not repeat the numbers of its predecessor.
	stream := uint64(at.index + 1000*at.began)
	at.began++
	c := &Client{Name: fmt.Sprintf("client %d", at.index+1), Rand: w.random(stream + 100), world: w, place: at, follower: follower}
	c.alive, c.kill = context.WithCancel(w.over)
	c.Link, c.linked = w.Server.Link(w), w.Now()
	c.servers = w.random(stream + 200)
	// Cleanups run in reverse order, so this one runs after the client was closed.
	w.Cleanup(c.hangUp)
	c.latency = 100*time.Microsecond + upto(c.Rand, 2*time.Millisecond)
	own := []protocol.ConnectOption{
		protocol.WithSessionTimeout(w.Timeout), protocol.WithDialer(c.dialChecked), w.paced(c.Rand.Uint64()),
		session.PacketLimit(maxPacket).(protocol.ConnectOption), protocol.WithObserver(observer{c}),
	}

	c.Client = c.Link.Client(w, append(own, at.opts...)...)
	c.watchRoot()
	// The latency begins only now, so that the set-up takes no time.
	c.Link.Delay(c.latency)
	return c
}

// Operator returns a client whose process and network never have faults. Only faults of the server
// reach it. The first call connects it, so make that call in the set-up function or in
// [World.Finally].
func (w *World) Operator() *protocol.Client {
	if w.operator == nil {
		w.operator = w.Server.Client(w, protocol.WithSessionTimeout(w.Timeout), w.paced(w.random(2).Uint64()),
			session.PacketLimit(maxPacket).(protocol.ConnectOption))
	}
	return w.operator
}

// paced is a back-off with pauses that the seed decides.
func (w *World) paced(seed uint64) protocol.Option {
	var mu sync.Mutex
	pace := rand.New(rand.NewPCG(seed, 0))
	return protocol.WithBackOff(func() backoff.BackOff {
		mu.Lock()
		defer mu.Unlock()
		return backoff.NewExponentialBackOff(
			backoff.WithInitialInterval(20*time.Millisecond+upto(pace, 20*time.Millisecond)), backoff.WithMaxInterval(2*time.Second),
			backoff.WithMultiplier(2), backoff.WithRandomizationFactor(0), backoff.WithMaxElapsedTime(0))
	})
}

// Finally calls f when all work is done and there were no faults for two session timeouts, so
// everything must succeed then. The world fails with f's error. ctx ends after a hundred session
// timeouts. what completes the text of the failure: "in the end, …".
func (w *World) Finally(what string, f func(ctx context.Context) error) {
	w.finally = append(w.finally, step{what, f})
}

// Check calls f in the end. The world fails with its error.
func (w *World) Check(f func() error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.checks = append(w.checks, f)
}

// Now returns the time since the world began.
func (w *World) Now() time.Duration { return time.Since(w.began) }

// play runs the world from its beginning to its end.
func (w *World) play(simulate func(*World), p plan, kinds []Kind) {
	defer w.bench.cleanUp()
	w.plan = p
	// Set the world up.
	var main sync.WaitGroup
	main.Go(func() { // Fatal may end this goroutine
		defer w.recovered("the simulation")
		w.start()
		simulate(w)
	})

	main.Wait()
	w.work.end()
	if w.Server == nil {
		return
	}

	// Let clients work and faults happen until all work is done.
	quiet, stop := context.WithCancel(w.over)
	var faults sync.WaitGroup
	if !w.Failed() {
		all := w.draw(kinds)
		if slices.ContainsFunc(all, func(f Fault) bool { return f.Kind == Deletion || f.Kind == Uproot }) {
			w.Operator() // while it can connect
		}
		faults.Go(func() { w.strikeAll(quiet, all) })
	}

	w.await(&faults)
	// End all faults and look at the result.
	stop()
	faults.Wait()
	w.calm()
	if !w.Failed() {
		main.Go(w.conclude)
		main.Wait()
	}

	// Work that is left must end now.
	w.giveUp()
	select {
	case <-w.work.done:
	case <-time.After(endLimit * w.Timeout): // the bubble will report what is left
	}
}

// await blocks until all work is done or has taken too long.
func (w *World) await(faults *sync.WaitGroup) {
	calm := make(chan struct{})
	go func() {
		faults.Wait()
		close(calm)
	}()

	select {
	case <-w.work.done:
		return
	case <-calm:
	}

	// From here on nothing is in the way, so the work must end.
	w.calm()
	select {
	case <-w.work.done:
		return
	case <-time.After(endLimit * w.Timeout):
	}

	for _, c := range w.Alive() {
		if n := c.working.Load(); n > 0 {
			w.bench.fail(fmt.Errorf("%s is stuck: all faults were over %v ago", c.Name, endLimit*w.Timeout))
		}
	}

	w.giveUp()
}

func (w *World) conclude() {
	defer w.recovered("the conclusion")
	ctx, cancel := context.WithTimeout(w.over, endLimit*w.Timeout)
	defer cancel()

	if len(w.finally) > 0 {
		time.Sleep(2 * w.Timeout) // an earlier fault could still end a session
	}

	for _, s := range w.finally {
		if err := s.do(ctx); err != nil {
			w.bench.fail(fmt.Errorf("in the end, %s: %w", s.what, err))
		}
	}

	// The steps can add to the histories, so check these afterwards.
	for _, check := range append(w.checks, w.checkHolds) {
		if err := check(); err != nil {
			w.bench.fail(err)
		}
	}

	// After another failure, watches that are left prove nothing.
	if !w.Failed() {
		w.checkWatches()
	}
}

// checkWatches fails the world if watches are left on the server.
func (w *World) checkWatches() {
	var left int
	// Packets that remove watches may still be under way, so look for a while.
	for deadline := time.Now().Add(2 * w.Timeout); ; {
		c, err := w.Server.Dial("tcp", "", time.Second)
		if err != nil {
			w.bench.fail(err)
			return
		}
		answer := ask(c, "wchs")
		_, count, _ := strings.Cut(answer, "Total watches:")
		if _, err := fmt.Sscan(count, &left); err != nil {
			w.bench.fail(fmt.Errorf("watches cannot be counted: %w: %q", err, answer))
			return
		}
		// The watches of watchRoot stay, and so do watches of sessions that have waited for a
		// permit (they go on watching the number of permits).
		if left <= w.Watches+(1+w.numbers)*len(w.Alive()) {
			return
		}
		if time.Now().After(deadline) {
			break
		}
		time.Sleep(w.Timeout / 20)
	}

	w.bench.fail(fmt.Errorf("%d watches are left", left))
}

func (w *World) recovered(what string) {
	if r := recover(); r != nil {
		w.bench.fail(fmt.Errorf("%s panics: %v\n%s", what, r, debug.Stack()))
	}
}
