package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

// Once nothing befalls anybody any more, everything ends within so many session timeouts.
const patience = 100

// A World is one server, its clients, and what one seed does to them. It is a
// [testing.TB]: what fails or is logged there belongs to this seed, Cleanup functions run when it is
// over, and Fatal ends the goroutine that calls it.
//
// The simulation sets it up and returns. Then clients work and faults happen,
// until all work is done. Networks and processes are made whole again, [World.Finally] runs,
// histories are checked, and so is what is left behind.
type World struct {
	*bench
	Server  *recipestest.Server
	Path    string        // for the simulation to use
	Timeout time.Duration // of sessions; of the order of what everything in this world takes
	Rand    *rand.Rand    // for the simulation itself; goroutines that run at the same time have their client's
	Watches int           // so many may be left on the server in the end; 0 unless the simulation sets it

	seed    uint64
	began   time.Time
	clients []*Client
	sound   *protocol.Client
	finally []step
	checks  []func() error
	work    sync.WaitGroup
	over    context.Context // ends when work has taken too long
	giveUp  context.CancelFunc
	record  record
	forced  forced
}

var _ testing.TB = (*World)(nil)

type step struct {
	what string
	do   func(context.Context) error
}

func newWorld(t testing.TB, seed uint64) *World {
	w := &World{bench: newBench(t), seed: seed, began: time.Now()}
	w.Rand = w.random(0)
	w.over, w.giveUp = context.WithCancel(context.Background())
	w.Timeout = time.Second + w.Upto(4*time.Second).Truncate(time.Millisecond)
	return w
}

// start starts the server. It may fail.
func (w *World) start() {
	tick := w.Timeout / time.Duration(2+w.Rand.IntN(20))
	w.Server = recipestest.Start(w, recipestest.WithConfig(embedded.Config{
		InMemory:          true,
		TickTime:          tick.Truncate(time.Millisecond),
		MinSessionTimeout: w.Timeout,
		MaxSessionTimeout: w.Timeout,
	}))
	w.Path = w.Server.Root(w) + "/sim"
}

// random makes a stream of numbers of its own.
func (w *World) random(stream uint64) *rand.Rand { return rand.New(rand.NewPCG(w.seed, stream)) }

// Upto draws a duration from [World.Rand].
func (w *World) Upto(most time.Duration) time.Duration { return upto(w.Rand, most) }

func upto(r *rand.Rand, most time.Duration) time.Duration {
	return time.Duration(r.Int64N(max(int64(most), 1)))
}

// Clients connects n clients, each a process of its own with a network of its
// own, which faults befall. It may be called once, by the simulation.
func (w *World) Clients(n int, opts ...protocol.ConnectOption) []*Client {
	for i := range n {
		c := &Client{Name: fmt.Sprintf("client %d", i+1), Rand: w.random(uint64(i) + 100), world: w}
		c.Link = w.Server.Link(w)
		c.follower, c.servers = w.Server.Embedded().Follower(), w.random(uint64(i)+200)
		w.Cleanup(c.hangUp)
		c.latency = 100*time.Microsecond + upto(c.Rand, 2*time.Millisecond)
		own := []protocol.ConnectOption{
			protocol.WithSessionTimeout(w.Timeout), protocol.WithDialer(c.dialStrict), w.paced(c.Rand.Uint64()),
		}
		c.Client = c.Link.Client(w, append(own, opts...)...)
		c.watchRoot()
		c.Link.Delay(c.latency)
		w.clients = append(w.clients, c)
	}
	return w.clients
}

// Operator is a client whose process and network are always sound. Only faults of the server befall it. The first call, which
// connects it, belongs into the simulation itself, or into [World.Finally].
func (w *World) Operator() *protocol.Client {
	if w.sound == nil {
		w.sound = w.Server.Client(w, protocol.WithSessionTimeout(w.Timeout), w.paced(w.random(2).Uint64()))
	}
	return w.sound
}

// paced has retries take the seed's time rather than chance's.
func (w *World) paced(seed uint64) protocol.Option {
	var mu sync.Mutex
	pace := rand.New(rand.NewPCG(seed, 0))
	return protocol.WithBackOff(func() backoff.BackOff {
		mu.Lock()
		defer mu.Unlock()
		return &doubling{next: 20*time.Millisecond + upto(pace, 20*time.Millisecond)}
	})
}

// A doubling is a back-off without jitter.
type doubling struct{ next time.Duration }

func (d *doubling) Reset() {}
func (d *doubling) NextBackOff() time.Duration {
	now := d.next
	d.next = min(2*d.next, 2*time.Second)
	return now
}

// Finally has f called when all work is done, and the networks have been whole and every
// process has run for two session timeouts: now everything must be possible. The world fails with f's error, which it
// has a hundred session timeouts to return.
func (w *World) Finally(what string, f func(ctx context.Context) error) {
	w.finally = append(w.finally, step{what, f})
}

// Check has f called in the end; the world fails with its error.
func (w *World) Check(f func() error) { w.checks = append(w.checks, f) }

// Now is the time since the world began.
func (w *World) Now() time.Duration { return time.Since(w.began) }

// play lets everything happen. It returns when all of it has.
func (w *World) play(simulate func(*World), o options) {
	defer w.bench.cleanUp()
	var main sync.WaitGroup
	main.Go(func() { // which Fatal may end
		defer w.recovered("the simulation")
		w.start()
		simulate(w)
	})
	main.Wait()
	if w.Server == nil {
		return
	}
	done := make(chan struct{})
	go func() {
		w.work.Wait()
		close(done)
	}()
	quiet, stop := context.WithCancel(w.over)
	var faults sync.WaitGroup
	if !w.Failed() {
		all := w.draw(o)
		if slices.ContainsFunc(all, func(f Fault) bool { return f.Kind == Deletion }) {
			w.Operator() // while it can connect
		}
		faults.Go(func() { w.befall(quiet, all) })
	}
	w.await(done, &faults)
	stop()
	faults.Wait()
	w.calm()
	if !w.Failed() {
		main.Go(w.conclude)
		main.Wait()
	}
	w.giveUp()
	select {
	case <-done:
	case <-time.After(patience * w.Timeout): // the bubble will tell
	}
}

// await waits until all work is done, or has taken too long.
func (w *World) await(done <-chan struct{}, faults *sync.WaitGroup) {
	calm := make(chan struct{})
	go func() {
		faults.Wait()
		close(calm)
	}()
	select {
	case <-done:
		return
	case <-calm:
	}
	w.calm()
	select {
	case <-done:
		return
	case <-time.After(patience * w.Timeout):
	}
	for _, c := range w.clients {
		if n := c.working.Load(); n > 0 {
			w.bench.fail(fmt.Errorf("%s is stuck: the last fault was over %v ago", c.Name, patience*w.Timeout))
		}
	}
	w.giveUp()
}

// calm makes everything whole.
func (w *World) calm() {
	if err := w.Server.Embedded().Resume(); err != nil {
		w.bench.fail(err)
	}
	for _, c := range w.clients {
		c.calm()
	}
}

func (w *World) conclude() {
	defer w.recovered("the conclusion")
	ctx, cancel := context.WithTimeout(w.over, patience*w.Timeout)
	defer cancel()
	if len(w.finally) > 0 {
		time.Sleep(2 * w.Timeout) // or a session could yet be lost to what has befallen it
	}
	for _, s := range w.finally {
		if err := s.do(ctx); err != nil {
			w.bench.fail(fmt.Errorf("in the end, %s: %w", s.what, err))
		}
	}
	for _, check := range w.checks {
		if err := check(); err != nil {
			w.bench.fail(err)
		}
	}
	if !w.Failed() {
		w.checkWatches()
	}
}

// checkWatches has the world fail if watches stay on the server.
func (w *World) checkWatches() {
	var left int
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
		if left <= w.Watches+len(w.clients) { // see watchRoot
			return
		}
		if time.Now().After(deadline) {
			break
		}
		time.Sleep(w.Timeout / 20)
	}
	w.bench.fail(fmt.Errorf("%d watches are left", left))
}

func (w *World) recovered(who string) {
	if r := recover(); r != nil {
		w.bench.fail(fmt.Errorf("%s panics: %v\n%s", who, r, debug.Stack()))
	}
}

// ephemerals are the ephemeral nodes below a path.
func (w *World) ephemerals(ctx context.Context, path string) (nodes []string, stats []*zk.Stat, err error) {
	s, err := w.Operator().Session(ctx)
	if err != nil {
		return nil, nil, err
	}
	names, stat, err := s.Conn().Children(path)
	if err != nil {
		return nil, nil, err
	}
	if stat.EphemeralOwner != 0 {
		return []string{path}, []*zk.Stat{stat}, nil
	}
	for _, name := range names {
		below, ss, err := w.ephemerals(ctx, path+"/"+name)
		if err != nil && !errors.Is(err, zk.ErrNoNode) {
			return nil, nil, err
		}
		nodes, stats = append(nodes, below...), append(stats, ss...)
	}
	return nodes, stats, nil
}
