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

	"github.com/zkrecipes/zkrecipes/internal/buffer"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

// endLimit is how many session timeouts all work may take to end once there are no more faults.
const endLimit = 100

// maxPacket is how long requests and answers may be. A client's buffers are that long.
const maxPacket = 128 << 10

// A World is one server, its clients, and the faults of one seed. It is a [testing.TB]: failures
// and logs belong to this seed, Cleanup functions run when it is over, and Fatal ends the goroutine
// that calls it.
//
// The simulation sets the world up and returns. Then clients work and faults happen, until all work
// is done. All faults are ended, [World.Finally] runs, histories are checked, and so is what is
// left behind.
type World struct {
	*bench
	Server  *recipestest.Server
	Path    string        // for the simulation to use
	Timeout time.Duration // of sessions; the scale of all times in this world
	Rand    *rand.Rand    // for the function that sets the world up; goroutines use Client.Rand
	Watches int           // how many may be left on the server in the end

	seed    uint64
	began   time.Time
	clients []*Client
	sound   *protocol.Client
	finally []step
	checks  []func() error
	work    sync.WaitGroup
	over    context.Context // done when work has taken too long
	giveUp  context.CancelFunc
	record  record
	forced  forced
	held    held
	drawn   []Kind   // the faults that were drawn
	strikes []strike // and those that have happened
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

// random returns one of the seed's independent streams of numbers.
func (w *World) random(stream uint64) *rand.Rand { return rand.New(rand.NewPCG(w.seed, stream)) }

// Upto draws a duration from [World.Rand].
func (w *World) Upto(most time.Duration) time.Duration { return upto(w.Rand, most) }

func upto(r *rand.Rand, most time.Duration) time.Duration {
	return time.Duration(r.Int64N(max(int64(most), 1)))
}

// Clients connects n clients. Each is a process with a network of its own, and has faults. It may
// be called once, by the function that sets the world up.
func (w *World) Clients(n int, opts ...protocol.ConnectOption) []*Client {
	for i := range n {
		c := &Client{Name: fmt.Sprintf("client %d", i+1), Rand: w.random(uint64(i) + 100), world: w}
		c.Link = w.Server.Link(w)
		c.follower, c.servers = w.Server.Embedded().Follower(), w.random(uint64(i)+200)
		w.Cleanup(c.hangUp)
		c.latency = 100*time.Microsecond + upto(c.Rand, 2*time.Millisecond)
		own := []protocol.ConnectOption{
			protocol.WithSessionTimeout(w.Timeout), protocol.WithDialer(c.dialChecked), w.paced(c.Rand.Uint64()),
			buffer.Limit(maxPacket).(protocol.ConnectOption),
		}
		c.Client = c.Link.Client(w, append(own, opts...)...)
		c.watchRoot()
		c.Link.Delay(c.latency)
		w.clients = append(w.clients, c)
	}

	return w.clients
}

// Operator returns a client whose process and network are always sound. Only faults of the server
// reach it. The first call connects it. Make that in the function that sets the world up, or in
// [World.Finally].
func (w *World) Operator() *protocol.Client {
	if w.sound == nil {
		w.sound = w.Server.Client(w, protocol.WithSessionTimeout(w.Timeout), w.paced(w.random(2).Uint64()),
			buffer.Limit(maxPacket).(protocol.ConnectOption))
	}
	return w.sound
}

// paced is a back-off whose pauses the seed decides.
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

// Finally calls f when all work is done, and there have been no faults for two session timeouts:
// everything must be possible then. The world fails with f's error. ctx ends after a hundred
// session timeouts. what completes the failure text "in the end, …".
func (w *World) Finally(what string, f func(ctx context.Context) error) {
	w.finally = append(w.finally, step{what, f})
}

// Check calls f in the end. The world fails with its error.
func (w *World) Check(f func() error) { w.checks = append(w.checks, f) }

// Now returns the time since the world began.
func (w *World) Now() time.Duration { return time.Since(w.began) }

// play runs the world from its beginning to its end.
func (w *World) play(simulate func(*World), o options) {
	defer w.bench.cleanUp()
	var main sync.WaitGroup
	main.Go(func() { // a goroutine that Fatal may end
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
		if slices.ContainsFunc(all, func(f Fault) bool { return f.Kind == Deletion || f.Kind == Uproot }) {
			w.Operator() // while it can connect
		}
		faults.Go(func() { w.strikeAll(quiet, all) })
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
	case <-time.After(endLimit * w.Timeout): // the bubble will report what is left
	}
}

// await blocks until all work is done, or has taken too long.
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
	case <-time.After(endLimit * w.Timeout):
	}

	for _, c := range w.clients {
		if n := c.working.Load(); n > 0 {
			w.bench.fail(fmt.Errorf("%s is stuck: all faults were over %v ago", c.Name, endLimit*w.Timeout))
		}
	}

	w.giveUp()
}

// calm ends all faults.
func (w *World) calm() {
	if err := w.Server.Embedded().Resume(); err != nil {
		w.bench.fail(err)
	}
	w.Server.Embedded().SetClockRate(1)
	for _, c := range w.clients {
		c.calm()
	}
}

func (w *World) conclude() {
	defer w.recovered("the conclusion")
	ctx, cancel := context.WithTimeout(w.over, endLimit*w.Timeout)
	defer cancel()

	if len(w.finally) > 0 {
		time.Sleep(2 * w.Timeout) // a session could still be lost to an earlier fault
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

// checkWatches fails the world if watches are left on the server.
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
		if left <= w.Watches+len(w.clients) { // those of watchRoot
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

// ephemerals returns the ephemeral nodes below a path.
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
