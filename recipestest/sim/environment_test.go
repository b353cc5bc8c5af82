package sim_test

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipestest/sim"
)

const childEnv = "ZKRECIPES_TEST_SIM_CHILD"

// TestSimOfAChildProcess fails with its seed, in a process that the next test starts.
func TestSimOfAChildProcess(t *testing.T) {
	if os.Getenv(childEnv) == "" {
		t.Skip("only as a child of another test")
	}
	sim.Run(t, func(w *sim.World) { w.Errorf("a bug") }, sim.WithFaults())
}

// TestSimOfHoldersThatHoldNothing fails as it has nothing to check, in a process that the next test
// but one starts.
func TestSimOfHoldersThatHoldNothing(t *testing.T) {
	if os.Getenv(childEnv) == "" {
		t.Skip("only as a child of another test")
	}
	sim.Run(t, func(w *sim.World) {
		w.Exclusive("the lock")
		idle(func(*sim.Client, time.Duration) error { return nil })(w)
	}, sim.WithFaults(sim.Cut), sim.WithSeeds(5))
}

func TestVariablesOfTheEnvironmentStandForFlags(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		variable, flag, want string
	}{
		{"ZKRECIPES_SIM_SEED=7", "-test.v", "seed 7 fails"},
		{"ZKRECIPES_SIM_SEED=7", "-sim.seed=8", "seed 8 fails"},
		{"ZKRECIPES_SIM_FOR=soon", "-test.v", `ZKRECIPES_SIM_FOR="soon": parse error`},
		{"ZKRECIPES_SIM_SEED=", "-test.v", "seed 1 fails"},
		{"ZKRECIPES_SIM_ONLY=faults=0", "-sim.seed=7", "seed 7 fails"},
		{"ZKRECIPES_SIM_ONLY=faults=0", "-test.v", "name that with -sim.seed"},
		{"ZKRECIPES_SIM_ONLY=steps=0", "-sim.seed=7", "neither clients nor faults"},
		{"ZKRECIPES_SIM_FROM=9", "-sim.seeds=2", "seed 9 fails"},
	} {
		child := exec.Command(os.Args[0], "-test.run=^TestSimOfAChildProcess$", test.flag)
		child.Env = append(os.Environ(), childEnv+"=1", test.variable)
		out, err := child.CombinedOutput()
		require.Error(t, err, test.variable)
		require.Contains(t, string(out), test.want, test.variable)
	}
}

func TestSimulationOfHoldersThatHoldNothingFails(t *testing.T) {
	t.Parallel()
	child := exec.Command(os.Args[0], "-test.run=^TestSimOfHoldersThatHoldNothing$")
	child.Env = append(os.Environ(), childEnv+"=1")
	out, err := child.CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "no fault has met a client that holds something")
}
