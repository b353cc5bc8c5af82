// Package conformance runs the recipes' tests on a real ensemble.
//
// Each recipe's suite runs on the embedded server and on a real one that stands alone. Here that real one is an ensemble
// of three, over whose members the clients of each test are spread: what one of them has been answered, another may not
// see yet.
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

var enabled = flag.Bool("ensemble", false, "run the recipes' tests on an ensemble, which takes some minutes")

func TestRecipesOnAnEnsemble(t *testing.T) {
	if !*enabled {
		t.Skip("it takes minutes: ask for it with -ensemble")
	}
	servers := ensemble.Start(t, 3).ConnectString()
	for _, recipe := range []string{"lock", "rwlock", "election", "barrier", "doublebarrier", "queue"} {
		t.Run(recipe, func(t *testing.T) {
			suite := exec.CommandContext(t.Context(), "go", "test", "-count=1", "-v", "-run", "/real$", ".")
			suite.Dir = "../../" + recipe
			suite.Env = append(os.Environ(), "ZKRECIPES_SERVERS="+servers)
			out, err := suite.CombinedOutput()
			require.NoError(t, err, "%s", out)
			require.Contains(t, string(out), "/real", "nothing has run")
		})
	}
}
