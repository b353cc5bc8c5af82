package sim_test

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipestest/sim"
)

const childEnv = "ZKRECIPES_TEST_SIM_CHILD"

// children are simulations that fail. Each runs in a process of its own.
var children = map[string]func(*testing.T){
	"a bug":   func(t *testing.T) { sim.Run(t, func(w *sim.World) { w.Errorf("a bug") }, sim.WithFaults()) },
	"zk.Lock": func(t *testing.T) { sim.Run(t, contendForZKLock, sim.WithFaults(sim.Pause), sim.WithSeeds(5)) },
	"nothing to check": func(t *testing.T) {
		sim.Run(t, func(w *sim.World) {
			w.Exclusive("the lock")
			steady(w)
		}, sim.WithFaults(sim.Cut), sim.WithSeeds(5))
	},
	// These don't end, and virtual time stands still.
	"stuckAtAMutex": stuck(func(w *sim.World) { w.Clients(1)[0].Go(stuckAtAMutex) }),
	"stuckInALoop":  stuck(func(w *sim.World) { w.Clients(1)[0].Go(stuckInALoop) }),
	"stuckInACheck": stuck(func(w *sim.World) { w.Check(stuckInACheck) }),
}

// itIsStuck is closed by each stuck program when it is about to be stuck.
var itIsStuck chan struct{}

func stuck(simulate func(*sim.World)) func(*testing.T) {
	return func(t *testing.T) {
		itIsStuck = sim.StuckOnce()
		sim.Run(t, simulate, sim.WithFaults(), sim.WithSeed(7))
	}
}

func stuckAtAMutex(context.Context) error {
	var mu sync.Mutex
	mu.Lock()
	close(itIsStuck)
	mu.Lock() // a bubble waits for a mutex, and its time stands still
	return nil
}

func stuckInALoop(context.Context) error {
	close(itIsStuck)
	for {
		runtime.Gosched()
	}
}

func stuckInACheck() error { return stuckInALoop(context.Background()) }

func TestSimOfAChild(t *testing.T) {
	child := children[os.Getenv(childEnv)]
	if child == nil {
		t.Skip("only in a process that another test starts")
	}
	child(t)
}

// fail runs a child, and returns its output.
func fail(t *testing.T, child string, environment []string, flags ...string) string {
	t.Helper()
	cmd := exec.Command(os.Args[0], append([]string{"-test.run=^TestSimOfAChild$"}, flags...)...)
	cmd.Env = append(append(os.Environ(), childEnv+"="+child), environment...)
	out, err := cmd.CombinedOutput()
	require.Error(t, err)
	return string(out)
}

func TestChildFails(t *testing.T) {
	for _, test := range []struct{ child, variable, flag, want string }{
		{"a bug", "ZKRECIPES_SIM_SEED=7", "-test.v", "seed 7 fails"},
		{"a bug", "ZKRECIPES_SIM_SEED=7", "-sim.seed=8", "seed 8 fails"},
		{"a bug", "ZKRECIPES_SIM_FOR=soon", "-test.v", `ZKRECIPES_SIM_FOR="soon": parse error`},
		{"a bug", "ZKRECIPES_SIM_SEED=", "-test.v", "seed 1 fails"},
		{"a bug", "ZKRECIPES_SIM_ONLY=faults=0", "-sim.seed=7", "seed 7 fails"},
		{"a bug", "ZKRECIPES_SIM_ONLY=faults=0", "-test.v", "name that with -sim.seed"},
		{"a bug", "ZKRECIPES_SIM_ONLY=steps=0", "-sim.seed=7", "neither clients nor faults"},
		{"a bug", "ZKRECIPES_SIM_FROM=9", "-sim.seeds=2", "seed 9 fails"},
		{"nothing to check", "ZKRECIPES_SIM_SEED=", "-test.v", "no fault has met a client that holds something"},
	} {
		t.Run(test.variable+" "+test.flag, func(t *testing.T) {
			t.Parallel()
			require.Contains(t, fail(t, test.child, []string{test.variable}, test.flag), test.want)
		})
	}
}

func TestStuckScheduleEndsTheProcess(t *testing.T) {
	for _, where := range []string{"stuckAtAMutex", "stuckInALoop", "stuckInACheck"} {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			// The stack of a goroutine that runs on another thread can't be printed.
			out := fail(t, where, []string{"GOMAXPROCS=1"}, "-test.timeout=3m")
			require.Contains(t, out, "sim: seed 7 has not ended for 5m0s")
			require.Contains(t, out, "panic: sim: seed 7 is stuck")
			require.Contains(t, out, "-run '^TestSimOfAChild$' -sim.seed=7")
			require.Contains(t, out, "sim_test."+where+"(", "the stack of what is stuck")
		})
	}
}

var replayLine = regexp.MustCompile(`replay: +go test \S+ -run '\^TestSimOfAChild\$' (-sim\.seed=1) (-sim\.only)='(clients=\d(?::1)?,\d(?::1)? faults=\d(?:\+\S+)?)'`)

// Two clients with one turn each, and one fault, are enough to show that the lock of go-zookeeper
// may have two holders.
func TestReplayPlaysWhatAFailureWasShrunkTo(t *testing.T) {
	t.Parallel()
	play := func(flags ...string) (out string, replay []string) {
		out = fail(t, "zk.Lock", nil, flags...)
		require.Contains(t, out, "seed 1 fails, after 1 schedules")
		require.Contains(t, out, "the lock has two holders")
		require.Equal(t, 2, strings.Count(out, "Latest packets of client"))
		require.Regexp(t, replayLine, out)
		return out, replayLine.FindStringSubmatch(out)
	}

	out, replay := play("-sim.seed=1")
	require.Greater(t, strings.Count(out, "pause for"), 2)
	again, _ := play(replay[1], replay[2]+"="+replay[3])
	require.Equal(t, 2, strings.Count(again, "turns of client "), again)
	require.Equal(t, 2, strings.Count(again, ": 1\n"), again)
	require.Equal(t, 2, strings.Count(again, "pause for"), again) // all faults, and those that suffice
}
