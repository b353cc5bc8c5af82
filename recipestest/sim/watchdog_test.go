package sim_test

import (
	"context"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"testing"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipestest/sim"
)

const stuckEnv = "ZKRECIPES_TEST_SIM_STUCK"

// stuck are ways not to end. Virtual time stands still in all of them.
var stuck = map[string]func(w *sim.World){
	"stuckAtAMutex": func(w *sim.World) {
		w.Clients(1)[0].Go(func(context.Context) error {
			stuckAtAMutex()
			return nil
		})
	},
	"stuckInALoop": func(w *sim.World) {
		w.Clients(1)[0].Go(func(context.Context) error {
			stuckInALoop()
			return nil
		})
	},
	"stuckInACheck": func(w *sim.World) { w.Check(stuckInACheck) },
}

// itIsStuck is closed by each of them when it is about to be stuck.
var itIsStuck chan struct{}

func stuckAtAMutex() {
	var mu sync.Mutex
	mu.Lock()
	close(itIsStuck)
	mu.Lock() // a bubble waits for a mutex, and its time stands still
}

func stuckInALoop() {
	close(itIsStuck)
	for {
		runtime.Gosched()
	}
}

// stuckInACheck has a history that porcupine would need longer for than the world lasts.
func stuckInACheck() error {
	var all []porcupine.Operation
	for i := range 100 {
		all = append(all, porcupine.Operation{ClientId: i, Input: i, Call: 0, Return: 1})
	}
	porcupine.CheckOperations(porcupine.Model{
		Init: func() any { close(itIsStuck); return "" },
		Step: func(state, input, _ any) (bool, any) {
			return input.(int) > 0, state.(string) + string(rune(input.(int)))
		},
	}, all)
	return nil
}

// TestSimOfAStuckChild does not end, in a process that the next test starts.
func TestSimOfAStuckChild(t *testing.T) {
	simulate := stuck[os.Getenv(stuckEnv)]
	if simulate == nil {
		t.Skip("only as a child of another test")
	}
	itIsStuck = sim.StuckOnce()
	sim.Run(t, simulate, sim.WithFaults(), sim.WithSeed(7))
}

func TestStuckScheduleEndsTheProcess(t *testing.T) {
	for where := range stuck {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			child := exec.Command(os.Args[0], "-test.run=^TestSimOfAStuckChild$", "-test.timeout=3m")
			child.Env = append(os.Environ(), stuckEnv+"="+where)
			out, err := child.CombinedOutput()
			require.Error(t, err)
			require.Contains(t, string(out), "sim: seed 7 has not ended for 1m0s")
			require.Contains(t, string(out), "panic: sim: seed 7 is stuck")
			require.Contains(t, string(out), "-run '^TestSimOfAStuckChild$' -sim.seed=7")
			require.Contains(t, string(out), "sim_test."+where+"(", "the stack of what is stuck")
		})
	}
}
