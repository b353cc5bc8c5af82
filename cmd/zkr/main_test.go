package main

import (
	"bytes"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// TestMain makes the test binary zkr itself, for the processes that tests start.
func TestMain(m *testing.M) {
	if os.Getenv("ZKR_TEST_MAIN") != "" {
		main()
	}
	os.Exit(m.Run())
}

// zkr returns a process of zkr that has yet to be started.
func zkr(t *testing.T, servers string, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), self, args...)
	cmd.Env = append(os.Environ(), "ZKR_TEST_MAIN=1", "ZKR_SERVERS="+servers, "GORACE=atexit_sleep_ms=0")
	return cmd
}

// A result is what a process has left.
type result struct {
	status         int
	stdout, stderr string
}

// runZkr runs zkr to its end.
func runZkr(t *testing.T, servers string, args ...string) result {
	t.Helper()
	return finish(t, zkr(t, servers, args...))
}

// finish runs cmd to its end.
func finish(t *testing.T, cmd *exec.Cmd) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		require.ErrorAs(t, err, new(*exec.ExitError))
	}
	return result{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// each runs a test on the embedded server and on a real one.
func each(t *testing.T, test func(t *testing.T, s *recipestest.Server)) {
	t.Run("embedded", func(t *testing.T) { test(t, recipestest.Start(t)) })
	t.Run("real", func(t *testing.T) { test(t, suite.Real(t)) })
}

func TestBadCommandLineIsOneLineAndStatus64(t *testing.T) {
	for name, args := range map[string][]string{
		"command":     {"lokc"},
		"flag":        {"lock", "--shard", "/a", "--", "true"},
		"no path":     {"lock", "--", "true"},
		"no command":  {"lock", "/a"},
		"path":        {"lock", "a", "--", "true"},
		"own dead":    {"queue", "work", "/q", "--dead", "/q", "--attempts", "1", "--", "true"},
		"empty key":   {"once", "/a", "", "--", "true"},
		"acl":         {"lock", "--acl", "world:anyone:x", "/a", "--", "true"},
		"wait":        {"lock", "--wait", "-1s", "/a", "--", "true"},
		"auth":        {"lock", "--auth", "secret", "/a", "--", "true"},
		"tls":         {"lock", "--tls-cert", "/nowhere", "/a", "--", "true"},
		"connect":     {"lock", "--servers", "a:b:c:d", "/a", "--", "true"},
		"no duration": {"lock", "--timeout", "5", "/a", "--", "true"},
	} {
		t.Run(name, func(t *testing.T) {
			r := runZkr(t, "127.0.0.1:1", args...)
			assert.Equal(t, exitUsage, r.status)
			assert.Empty(t, r.stdout)
			assert.Regexp(t, `\Azkr: [^\n]+\n\z`, r.stderr)
			assert.NotContains(t, r.stderr, "secret")
		})
	}
}
