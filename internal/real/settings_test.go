package real_test

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/recipestest/ensemble"
)

// settings are the options of the servers that [suite.RealWith] asks for.
var settings = map[string][]ensemble.Option{
	suite.SmallRequests: {ensemble.WithJVMFlags("-Djute.maxbuffer=65536")},
	suite.CredentialsDemanded: {
		ensemble.WithJVMFlags("-Dzookeeper.enforce.auth.enabled=true", "-Dzookeeper.enforce.auth.schemes=digest"),
		ensemble.WithConfig("enforce.auth.enabled=true", "enforce.auth.schemes=digest"),
	},
}

// unusual are the tests that need servers with such settings.
var unusual = map[string]string{
	suite.SmallRequests: "TestRequestLimitIsKeptBeforeAnythingIsSent|" +
		"TestManyWatchesAreSetAgainWhereRequestsMustBeSmall",
	suite.CredentialsDemanded: "TestLostSessionIsClosedWhereCredentialsAreDemanded",
}

func TestServersWithUnusualSettings(t *testing.T) {
	for setting, tests := range unusual {
		servers := ensemble.Start(t, 1, settings[setting]...).ConnectString()
		t.Run(setting, func(t *testing.T) {
			// The tests run in another process, because they find their server in the environment.
			cmd := exec.CommandContext(t.Context(), "go", "test", "-count=1", "-v", "-run", "^("+tests+")$/^real$", "../../protocol")
			cmd.Env = append(os.Environ(), "ZKRECIPES_SERVERS="+servers, "ZKRECIPES_SERVERS_WITH="+setting)
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s", out)
			// A test that is skipped passes, too, so count the passes on the real server.
			require.Len(t, regexp.MustCompile("--- PASS: .*/real").FindAll(out, -1), 1+strings.Count(tests, "|"), "%s", out)
		})
	}
}
