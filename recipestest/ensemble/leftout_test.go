package ensemble_test

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/zkrecipes/zkrecipes/recipestest/ensemble"
)

// neverReached tells TestServerIsNotReached which kind of server to ask for.
const neverReached = "ZKRECIPES_TEST_LEFT_OUT"

func TestRunsWithoutRealServers(t *testing.T) {
	for name, run := range map[string]struct {
		env, arg, says string
		passes         bool
	}{
		"-short":              {arg: "-test.short", says: "-short leaves real servers out", passes: true},
		"variable":            {env: "ZKRECIPES_REAL=0", says: "ZKRECIPES_REAL=0 leaves real servers out", passes: true},
		"-short and required": {env: "ZKRECIPES_REQUIRE_REAL=1", arg: "-test.short", says: "ZKRECIPES_REQUIRE_REAL=1, but no real ZooKeeper here: -short"},
	} {
		for _, wanted := range []string{"Real", "Real at ZKRECIPES_SERVERS", "Start"} {
			t.Run(name+"/"+wanted, func(t *testing.T) {
				t.Parallel()
				cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.v", "-test.run=^TestServerIsNotReached$", run.arg)
				if run.arg == "" {
					cmd.Args = cmd.Args[:3]
				}

				cmd.Env = append(os.Environ(), "ZKRECIPES_REAL=", "ZKRECIPES_REQUIRE_REAL=", neverReached+"="+wanted, run.env)

				out, err := cmd.CombinedOutput()
				assert.Equal(t, run.passes, err == nil, "%v", err)
				assert.Contains(t, string(out), run.says)
				assert.NotContains(t, string(out), "reached after all")
			})
		}
	}
}

// TestServerIsNotReached runs as a child process of TestRunsWithoutRealServers.
func TestServerIsNotReached(t *testing.T) {
	switch os.Getenv(neverReached) {
	case "":
		t.Skip("only runs as a child process of TestRunsWithoutRealServers")
	case "Start":
		ensemble.Start(t, 1)
	case "Real at ZKRECIPES_SERVERS":
		t.Setenv("ZKRECIPES_SERVERS", "127.0.0.1:1")
		fallthrough
	default:
		ensemble.Real(t)
	}
	t.Error("reached after all")
}
