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
	self := suite.Got(os.Executable())(t)
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

// All of these are refused before any I/O.
func TestBadCommandLineIsOneLineAndStatus64(t *testing.T) {
	pair := func(words ...string) []string { return append(words, "--", "true") }
	for _, args := range [][]string{
		{"lokc"}, {"group"}, {"queue", "tkae", "/q"}, {"barrier", "/b"},
		pair("lock", "--shard", "/a"), pair("lock"), {"lock", "/a"}, pair("lock", "a"),
		pair("once", "/a", ""), {"semaphore", "resize", "/a", "99999999999999999999"},
		pair("lock", "--acl", "world:anyone:x", "/a"), pair("lock", "--wait", "-1s", "/a"),
		pair("lock", "--auth", "secret", "/a"), pair("lock", "--tls-cert", "/nowhere", "/a"),
		pair("lock", "--servers", "a:b:c:d", "/a"), pair("lock", "--timeout", "5", "/a"),
		// Lists that stand for an identity need exactly one credential.
		{"queue", "len", "/q", "--acl", "creator"}, {"queue", "len", "/q", "--acl", "read"},
		{"queue", "len", "/q", "--acl", "auth::cdrwa", "--auth", "digest:a:b"},
		pair("queue", "work", "/q", "--dead", "/q", "--attempts", "1"),
		{"queue", "offer"}, {"queue", "offer", "q", "x"}, {"queue", "offer", "/q", "x", "--lines"},
		{"queue", "offer", "/q", "x", "y", "--key", "k"}, {"queue", "offer", "/q", "x", "--key", ""},
		{"queue", "offer", "/q", "x", "--key", "k", "--after", "1s"}, {"queue", "offer", "/q", "x", "--after", "-1s"},
		{"ps"}, {"ps", "relative"}, {"ps", "/a", "/b/"}, {"ps", "/a", "--interval", "1ms"}, {"ps", "/a", "--limit", "0"},
		{"ui", "relative"}, {"ui", "/a", "/b"}, {"ui", "--listen", "here"}, {"ui", "--listen", "0.0.0.0:0"}, {"ui", "--listen", ":0"},
		{"ui", "--listen", "[::]:0"}, {"ui", "--token", "short"}, {"ui", "--interval", "1ms"}, {"ui", "--idle", "-1s"},
		{"ui", "--idle", "100ms"}, {"ui", "--rate", "0"}, {"ui", "--limit", "0"},
		{"server", "--listen", "localhost"}, {"server", "--listen", "127.0.0.1:zookeeper"}, {"server", "--listen", "127.0.0.1:70000"},
		{"server", "--listen", ""}, {"server", "operand"}, {"server", "--listen", "127.0.0.1:0", "--data", ""},
	} {
		r := inProcess(t, "127.0.0.1:1", "", args...)
		assert.Equal(t, exitUsage, r.status, args)
		assert.Empty(t, r.stdout, args)
		assert.Regexp(t, `\Azkr: [^\n]+\n\z`, r.stderr, args)
		assert.NotContains(t, r.stderr, "secret")
	}
}
