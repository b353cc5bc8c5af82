package sim

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

var (
	flagFor  = flag.Duration("sim.for", 0, "how long all simulations of a run take together, instead of a number of seeds")
	flagSeed = flag.Uint64("sim.seed", 0, "play this seed alone, again and again")
	flagOnly = flag.String("sim.only", "", "play this `part` of the seed of -sim.seed, as a failure names it")
	flagN    = flag.Int("sim.seeds", 0, "how many seeds each simulation plays: 1, 2, 3 and so on (default 20, or 5 with -short)")
	flagFrom = flag.Uint64("sim.from", 1, "the first of the seeds of -sim.seeds")
	flagOut  = flag.String("sim.out", "", "`directory` for the timelines of simulations that fail")
)

// badEnvironment is why an environment variable can't be used for its flag.
var badEnvironment error

// Environment variables set the flags before the command line does, because packages without
// simulations don't know the flags.
func init() {
	for _, name := range []string{"for", "seed", "only", "seeds", "from", "out"} {
		variable := "ZKRECIPES_SIM_" + strings.ToUpper(name)
		value := os.Getenv(variable)
		if value == "" {
			continue
		}
		if err := flag.Set("sim."+name, value); err != nil {
			badEnvironment = errors.Join(badEnvironment, fmt.Errorf("%s=%q: %w", variable, value, err))
		}
	}
}

// How many seeds a simulation plays by default. (The first twenty find all bugs that the seeds are
// known to find.)
const (
	defaultSeeds = 20
	shortSeeds   = 5
)

// seedFor is for how long -sim.seed plays a seed.
const seedFor = 5 * time.Second

// An Option shapes a simulation. [Run] and [Find] fail their test if an option is invalid.
type Option func(*options) error

type options struct {
	kinds []Kind
	seeds int
	seed  uint64
	plan  plan
}

// WithFaults draws only faults of these kinds. Without any kind there are no faults.
func WithFaults(kinds ...Kind) Option {
	return func(o *options) error {
		o.kinds = kinds
		return checkKinds(kinds)
	}
}

// WithoutFaults draws no faults of these kinds.
func WithoutFaults(kinds ...Kind) Option {
	return func(o *options) error {
		o.kinds = slices.DeleteFunc(slices.Clone(o.kinds), func(k Kind) bool { return slices.Contains(kinds, k) })
		return checkKinds(kinds)
	}
}

func checkKinds(kinds []Kind) error {
	for _, k := range kinds {
		if !slices.Contains(allKinds, k) {
			return fmt.Errorf("no fault is of the kind %q", k)
		}
	}
	return nil
}

// WithSeeds plays n schedules (at least one) instead of twenty. Then only the flag -sim.seed has an
// effect: it plays that seed n times.
func WithSeeds(n int) Option {
	return func(o *options) error {
		if n < 1 {
			return fmt.Errorf("the number of seeds must be at least 1, got %d", n)
		}
		o.seeds = n
		return nil
	}
}

// WithSeed plays only this seed, once. Use it for a seed that has failed before and must not fail
// again.
func WithSeed(seed uint64) Option {
	return func(o *options) error {
		o.seed, o.seeds = seed, 1
		return nil
	}
}

func newOptions(t testing.TB, opts []Option) options {
	t.Helper()
	if badEnvironment != nil {
		t.Fatalf("sim: %v", badEnvironment)
	}
	o := options{kinds: allKinds}
	for _, opt := range opts {
		if err := opt(&o); err != nil {
			t.Fatalf("sim: %v", err)
		}
	}

	var err error
	if o.plan, err = parsePlan(*flagOnly); err != nil {
		t.Fatalf("sim: -sim.only: %v", err)
	} else if *flagOnly != "" && *flagSeed == 0 {
		t.Fatal("sim: -sim.only is part of a seed: name that with -sim.seed")
	}

	return o
}

// Run plays seeds one after the other, each in a world of its own. The first seed that goes wrong
// fails t. Run calls t.Parallel. simulate sets up a world (see [World]). It is called in a
// testing/synctest bubble, so its goroutines belong to the bubble.
func Run(t *testing.T, simulate func(w *World), opts ...Option) {
	t.Helper()
	f, met := find(t, simulate, newOptions(t, opts))
	switch {
	case f != nil:
		t.Fatal(f)
	case *flagSeed == 0 && met.isVacuous():
		t.Fatalf("sim: no fault has met a client that holds something:%v", met)
	}
}

// Find is Run, but it returns the first failure, or nil. Use it for simulations of code that is
// known to be wrong, to show that the checks find it. Goroutines that hang in the failed world
// stay, and don't fail t.
func Find(t *testing.T, simulate func(w *World), opts ...Option) *Failure {
	t.Helper()
	f, _ := find(t, simulate, newOptions(t, opts))
	return f
}

func find(t *testing.T, simulate func(w *World), o options) (*Failure, *coverage) {
	t.Helper()
	if o.seeds == 0 && *flagSeed == 0 {
		o.seeds = seeds()
	}
	budget, done := share(t, o.seeds == 0)
	defer done()
	// share has called t.Parallel, so the time counts from here.
	began, met := time.Now(), &coverage{}
	seed, plays := cmp.Or(*flagSeed, o.seed, firstSeed()), 0
	enough := func() bool {
		if o.seeds > 0 {
			return plays >= o.seeds
		}
		return time.Since(began) >= budget
	}

	for ; plays == 0 || !enough(); plays++ {
		if f := playSeed(t, seed, simulate, o, met); f != nil {
			f.Plays = plays + 1
			f.shrink(o.plan, func(p plan) *Failure {
				o.plan = p
				// Coverage is about whole schedules.
				return playSeed(t, seed, simulate, o, &coverage{})
			})
			f.write(t)
			return f, met
		}
		// Plays of one seed differ a little, so -sim.seed repeats it.
		if *flagSeed == 0 {
			seed++
		}
	}

	took := time.Since(began)
	t.Logf("%d schedules in %v, which is %.0f a second%v",
		plays, took.Round(time.Millisecond), float64(plays)/took.Seconds(), met)
	return nil, met
}

// seeds returns how many seeds a simulation plays (0 if it has a time limit instead).
func seeds() int {
	switch {
	case *flagN > 0:
		return *flagN
	case *flagFor > 0:
		return 0
	case testing.Short():
		return shortSeeds
	}
	return defaultSeeds
}

// firstSeed returns the first seed of a run. It is the same for each run, so that a new failure has
// its reason in a change. With -sim.for alone (a search), it is random.
func firstSeed() uint64 {
	if *flagFor == 0 || *flagN > 0 {
		return max(1, *flagFrom)
	}
	return uint64(rand.Uint32()) + 1
}

// playSeed plays one schedule in a bubble of its own, and adds to met what its faults have hit. It
// returns the failure, or nil.
func playSeed(t *testing.T, seed uint64, simulate func(*World), o options, met *coverage) (f *Failure) {
	var w *World
	defer watch(t.Name(), seed, o.plan.String())()
	defer func() {
		if r := recover(); r != nil { // the bubble can't end
			w.bench.fail(fmt.Errorf("goroutines are left: %v", r))
		}
		if err := w.bench.err(); err != nil {
			f = newFailure(t.Name(), seed, w, err)
		}
	}()

	synctest.Test(t, func(t *testing.T) {
		w = newWorld(t, seed)
		w.play(simulate, o.plan, o.kinds)
	})
	met.add(w)

	return nil
}

// running counts the simulations that wait or run.
var running struct {
	sync.Mutex
	all       int
	timed     int   // how many share the time, including those that have ended
	gcPercent int   // its former value
	memory    int64 // its former value
}

// gcPercent is used while simulations run. zk.Conn allocates megabytes for each connection, and
// clearing and freeing them is most of the cost of a schedule.
const gcPercent = 1000

// memory bounds the heap, in case tests that run beside simulations need a lot.
const memory = 512 << 20

// share returns how long a simulation may take, if it has a time limit. It calls t.Parallel, so it
// blocks until all simulations that run together are known.
func share(t *testing.T, timed bool) (budget time.Duration, done func()) {
	running.Lock()
	// The first simulation sets the limits, and the last restores them.
	if running.all++; running.all == 1 {
		running.gcPercent = debug.SetGCPercent(gcPercent)
		// Keep a setting that collects even less often.
		if running.gcPercent < 0 || running.gcPercent > gcPercent {
			debug.SetGCPercent(running.gcPercent)
		}
		running.memory = debug.SetMemoryLimit(-1)
		debug.SetMemoryLimit(min(running.memory, memory))
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
			debug.SetMemoryLimit(running.memory)
		}
	}
}

// budgetOf returns how long one of n simulations may take.
func budgetOf(t *testing.T, n int) time.Duration {
	budget := seedFor
	// The simulations share the time, but some of them run at once.
	part := func(of time.Duration) time.Duration { return of / time.Duration(n) * time.Duration(min(n, parallel())) }
	if *flagFor > 0 {
		budget = part(*flagFor)
	}

	if end, ok := t.Deadline(); ok { // set by -timeout
		budget = min(budget, part(time.Until(end)*9/10))
	}

	return budget
}

// parallel returns how many tests run at the same time.
func parallel() int {
	if f := flag.Lookup("test.parallel"); f != nil {
		if n, err := strconv.Atoi(f.Value.String()); err == nil && n > 0 {
			return n
		}
	}
	return 1
}
