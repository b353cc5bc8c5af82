package sim

import (
	"cmp"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

var (
	flagFor  = flag.Duration("sim.for", 0, "how long all simulations of a run take together (default: each takes 5s, or 1s with -short)")
	flagSeed = flag.Uint64("sim.seed", 0, "play this seed alone, again and again")
	flagOut  = flag.String("sim.out", "", "`directory` for the timelines of simulations that fail")
)

const (
	defaultFor = 5 * time.Second
	shortFor   = time.Second
	// A schedule that takes so long, on the wall, does not end any more.
	wallPatience = time.Minute
)

// An Option shapes a simulation.
type Option func(*options)

type options struct {
	kinds []Kind
	seeds int
	seed  uint64
	skip  []int // by index
}

// Faults has only faults of these kinds happen, and none if there are no kinds.
func Faults(kinds ...Kind) Option { return func(o *options) { o.kinds = kinds } }

// Without has no faults of these kinds happen.
func Without(kinds ...Kind) Option {
	return func(o *options) {
		o.kinds = slices.DeleteFunc(slices.Clone(o.kinds), func(k Kind) bool { return slices.Contains(kinds, k) })
	}
}

// Seeds has n schedules played, however long that takes, instead of as many as there is time for. Of the flags only
// -sim.seed counts then, which plays that seed n times.
func Seeds(n int) Option { return func(o *options) { o.seeds = n } }

// Seed has this seed played, once, and no other: it has failed before, and must not again.
func Seed(seed uint64) Option { return func(o *options) { o.seed, o.seeds = seed, 1 } }

func newOptions(opts []Option) options {
	o := options{kinds: allKinds}
	for _, opt := range opts {
		opt(&o)
	}
	return o
}

// Run plays one seed after the other, each in a world of its own, and fails t
// with the first one that goes wrong. It calls t.Parallel. simulate sets a world
// up: see [World]. It is called in a bubble of testing/synctest, and what it starts belongs to that.
func Run(t *testing.T, simulate func(w *World), opts ...Option) {
	t.Helper()
	if f := find(t, simulate, newOptions(opts)); f != nil {
		t.Fatal(f)
	}
}

// Find is Run, but returns the first failure, or nil if there is none. It is for simulations of what is known to be
// wrong: that it is found shows that the checks bite. Use [Seeds] with it, lest a slow machine find nothing.
// What is stuck for good in the world that failed stays so, and is no failure of t.
func Find(t *testing.T, simulate func(w *World), opts ...Option) *Failure {
	t.Helper()
	return find(t, simulate, newOptions(opts))
}

func find(t *testing.T, simulate func(w *World), o options) *Failure {
	t.Helper()
	budget, done := share(t, o.seeds == 0)
	defer done()
	began := time.Now()
	seed, plays := cmp.Or(*flagSeed, o.seed, firstSeed()), 0
	enough := func() bool {
		if o.seeds > 0 {
			return plays >= o.seeds
		}
		return time.Since(began) >= budget
	}
	for ; plays == 0 || !enough(); plays++ {
		if f := playSeed(t, seed, simulate, o); f != nil {
			f.Plays = plays + 1
			f.shrink(func(skip []int) bool {
				o.skip = skip
				return playSeed(t, seed, simulate, o) != nil
			})
			f.draw(t)
			return f
		}
		if *flagSeed == 0 {
			seed++
		}
	}
	took := time.Since(began)
	t.Logf("%d schedules in %v, which is %.0f a second", plays, took.Round(time.Millisecond), float64(plays)/took.Seconds())
	return nil
}

// firstSeed is where a run begins: always at the same place, so that a test that fails does so because of a change; but
// somewhere else each time if -sim.for asks for a search.
func firstSeed() uint64 {
	if *flagFor == 0 {
		return 1
	}
	return uint64(rand.Uint32()) + 1
}

// playSeed plays one schedule in a bubble of its own. It returns what went wrong, or nil.
func playSeed(t *testing.T, seed uint64, simulate func(*World), o options) (f *Failure) {
	var w *World
	late := time.AfterFunc(wallPatience, func() {
		fmt.Fprintf(os.Stderr, "sim: seed %d has not ended for %v: %s\n", seed, wallPatience, replay(t.Name(), seed))
	})
	defer late.Stop()
	defer func() {
		if r := recover(); r != nil { // the bubble cannot end
			w.bench.fail(fmt.Errorf("something is left: %v", r))
		}
		if err := w.bench.err(); err != nil {
			f = newFailure(t.Name(), seed, w, err)
		}
	}()
	synctest.Test(t, func(t *testing.T) {
		w = newWorld(t, seed)
		w.play(simulate, o)
	})
	return nil
}

// running are the simulations that are waiting or under way.
var running struct {
	sync.Mutex
	all       int
	timed     int // how many of them share the time, those included that are over
	gcPercent int // as it was before
}

// zk.Conn allocates megabytes for each connection; clearing them and giving them back is most of what a schedule costs.
const gcPercent = 1000

// share returns how long a simulation may take, if it is timed. It blocks until all simulations that are run together are
// known, which is what t.Parallel does.
func share(t *testing.T, timed bool) (budget time.Duration, done func()) {
	running.Lock()
	if running.all++; running.all == 1 {
		running.gcPercent = debug.SetGCPercent(gcPercent)
		if running.gcPercent < 0 || running.gcPercent > gcPercent {
			debug.SetGCPercent(running.gcPercent)
		}
	}
	if timed {
		running.timed++
	}
	running.Unlock()
	t.Parallel()
	running.Lock()
	defer running.Unlock()
	return budgetOf(t, max(1, running.timed)), func() {
		running.Lock()
		defer running.Unlock()
		if running.all--; running.all == 0 {
			running.timed = 0
			debug.SetGCPercent(running.gcPercent)
		}
	}
}

// budgetOf is how long one of n simulations may take.
func budgetOf(t *testing.T, n int) time.Duration {
	budget := defaultFor
	if testing.Short() {
		budget = shortFor
	}
	part := func(of time.Duration) time.Duration { return of / time.Duration(n) * time.Duration(min(n, parallel())) }
	if *flagFor > 0 {
		budget = part(*flagFor)
	}
	if end, ok := t.Deadline(); ok { // which -timeout sets
		budget = min(budget, part(time.Until(end)*9/10))
	}
	return budget
}

// parallel is how many tests run at the same time.
func parallel() int {
	if f := flag.Lookup("test.parallel"); f != nil {
		if n, err := strconv.Atoi(f.Value.String()); err == nil && n > 0 {
			return n
		}
	}
	return 1
}
