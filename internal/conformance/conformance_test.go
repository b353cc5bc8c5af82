// Package conformance runs the recipes' tests on a real ensemble.
//
// The suite that all locks have to pass, and the tests of each recipe, run on the embedded server
// and on a standalone real one. Here the real one is an ensemble of three, and the clients of each
// test are spread over its members. So one member may not see yet what another one has answered.
// The suite always runs. All the other tests run with
//
//	go test ./internal/conformance -ensemble
package conformance

import (
	"flag"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipestest/ensemble"
)

var everything = flag.Bool("ensemble", false, "run all of the recipes' tests on an ensemble, which takes some minutes")

// suites are the tests of each recipe that run the common suite.
var suites = map[string]string{
	"lock":     "TestMutexIsAFairLock|TestSimpleIsALock",
	"rwlock":   "TestReadingAndWritingAreFairLocks",
	"election": "TestElectionIsAFairLock",
}

func TestSuiteOnAnEnsemble(t *testing.T) {
	servers := ensemble.Start(t, 3).ConnectString()
	for recipe, suite := range suites {
		runOn(t, servers, recipe, "^("+suite+")$//^real$")
	}
}

func TestRecipesOnAnEnsemble(t *testing.T) {
	if !*everything {
		t.Skip("takes minutes: run it with -ensemble")
	}
	servers := ensemble.Start(t, 3).ConnectString()
	for _, recipe := range []string{"lock", "rwlock", "election", "barrier", "doublebarrier", "queue"} {
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
