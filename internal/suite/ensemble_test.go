package suite_test

import (
	"flag"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipestest/ensemble"
)

var everything = flag.Bool("ensemble", false, "run all of the recipes' tests on an ensemble, which takes some minutes")

// suites are the tests of each recipe that run the common suite. On an ensemble the clients of a
// test are spread over the members. One member may not know yet what another has answered.
var suites = map[string]string{
	"lock":      "TestMutexIsAFairLock|TestSimpleIsALock",
	"rwlock":    "TestReadingAndWritingAreFairLocks",
	"semaphore": "TestSemaphoreOfOneIsAFairLock",
	"election":  "TestElectionIsAFairLock",
	"once":      "TestOneCallOfManyRuns|TestCallThatWaitedLearnsThatTheKeyIsDone|TestConcurrentCallsForgetNoYoungerKeys",
}

func TestSuiteOnAnEnsemble(t *testing.T) {
	servers := ensemble.Start(t, 3).ConnectString()
	for recipe, tests := range suites {
		runOn(t, servers, recipe, "^("+tests+")$//^real$")
	}
}

func TestRecipesOnAnEnsemble(t *testing.T) {
	if !*everything {
		t.Skip("takes minutes: run it with -ensemble")
	}
	servers := ensemble.Start(t, 3).ConnectString()
	for _, recipe := range []string{"lock", "rwlock", "semaphore", "election", "group", "once", "barrier", "doublebarrier", "queue"} {
		runOn(t, servers, recipe, "/^real$")
	}
}

func runOn(t *testing.T, servers, recipe, tests string) {
	t.Run(recipe, func(t *testing.T) {
		cmd := exec.CommandContext(t.Context(), "go", "test", "-count=1", "-v", "-run", tests, ".")
		cmd.Dir = "../../" + recipe
		cmd.Env = append(os.Environ(), "ZKRECIPES_SERVERS="+servers)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.Contains(t, string(out), "/real", "no test has run")
	})
}
