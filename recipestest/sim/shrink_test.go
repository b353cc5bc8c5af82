package sim_test

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipestest/sim"
)

// TestSimOfTheLockOfGoZookeeper fails, in a process that the next test starts.
func TestSimOfTheLockOfGoZookeeper(t *testing.T) {
	if os.Getenv(childEnv) == "" {
		t.Skip("only as a child of another test")
	}
	sim.Run(t, contendForZKLock, sim.WithFaults(sim.Pause), sim.WithSeeds(5))
}

var replayLine = regexp.MustCompile(`replay: +go test \S+ -run '([^']+)' (-sim\.seed=1) (-sim\.only)='([^']+)'`)

// Two clients with one turn each, and one fault, are enough to show that the lock of go-zookeeper
// may have two holders.
func TestReplayPlaysWhatAFailureWasShrunkTo(t *testing.T) {
	t.Parallel()
	play := func(flags ...string) string {
		child := exec.Command(os.Args[0], flags...)
		child.Env = append(os.Environ(), childEnv+"=1")
		out, err := child.CombinedOutput()
		require.Error(t, err)
		require.Contains(t, string(out), "seed 1 fails, after 1 schedules")
		require.Contains(t, string(out), "the lock has two holders")
		require.Regexp(t, replayLine, string(out))
		return string(out)
	}

	out := play("-test.run=^TestSimOfTheLockOfGoZookeeper$", "-sim.seed=1")
	replay := replayLine.FindStringSubmatch(out)
	for range 3 {
		again := play("-test.run="+replay[1], replay[2], replay[3]+"="+replay[4])
		require.Equal(t, 2, strings.Count(again, "turns of client "), again)
		require.Equal(t, 2, strings.Count(again, ": 1\n"), again)
		require.Equal(t, 2, strings.Count(again, "pause for"), again) // all faults, and those that suffice
	}
}

func TestFailureIsShrunk(t *testing.T) {
	f := sim.Find(t, contendForZKLock, sim.WithFaults(sim.Pause), sim.WithSeed(1))
	require.NotNil(t, f)
	require.Greater(t, len(f.Faults), 1)
	require.Len(t, f.Enough, 1)
	require.Regexp(t, `^clients=\d(:1)?,\d(:1)? faults=\d(\+\S+)?$`, f.Only)
	require.Equal(t, 2, strings.Count(f.String(), "Latest packets of client"))

	page, err := os.ReadFile(f.Timeline)
	require.NoError(t, err)
	require.Equal(t, 2, strings.Count(string(page), "<h2>Packets of client"))
	require.Contains(t, string(page), "getChildren /")
}
