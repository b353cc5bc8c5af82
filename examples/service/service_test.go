//go:build unix

package main

import (
	"context"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/examples/internal/sandbox/sandboxtest"
	"github.com/zkrecipes/zkrecipes/internal/suite"
)

// sessionTimeout is so long that no slow replica loses its session. The one that is stopped does.
const sessionTimeout = 10 * time.Second

func TestMain(m *testing.M) {
	if slices.Contains(os.Args, "-replica") { // the test binary starts copies of itself
		main()
		os.Exit(0)
	}
	suite.Main(m)
}

// run returns the demo with a session timeout. It must leave no process.
func run(t *testing.T, timeout time.Duration) sandboxtest.Example {
	return func(ctx context.Context, out io.Writer, servers string) error {
		err := demo(ctx, out, servers, timeout)
		ps, failed := exec.Command("ps", "-e", "-o", "args").Output()
		assert.NoError(t, failed)
		assert.NotContains(t, string(ps), "-servers "+servers+"/service-")
		return err
	}
}

func TestLateWriteOfAFormerLeaderIsRefused(t *testing.T) {
	suite.SkipShort(t)
	sandboxtest.Run(t, "service", run(t, sessionTimeout), requireFacts)
}

// requireFacts checks the output of the demo for what it promises.
func requireFacts(t *testing.T, out string, _ bool) {
	t.Helper()
	facts := regexp.MustCompile(`^Three replicas, .*
(\S+), after \S+ s, writes "hello" with token (\d+)

(\S+) gets SIGTERM, and ends\.
(\S+), after \S+ s, writes "hello again" with token (\d+)

(\S+) stops after it has looked .*
(\S+), after (\S+) s, writes "in time" with token (\d+)
(\S+), after \S+ s, does not write: election: /service/leader: lost: .*
$`).FindStringSubmatch(out)
	require.NotNil(t, facts)
	first, second, third := facts[1], facts[4], facts[7]
	require.Equal(t, []string{first, second, second}, []string{facts[3], facts[6], facts[10]})
	require.NotContains(t, []string{first, second}, third)
	require.NotEqual(t, first, second)

	var tokens []int64
	for _, token := range []string{facts[2], facts[5], facts[9]} {
		number := suite.Got(strconv.ParseInt(token, 10, 64))(t)
		tokens = append(tokens, number)
	}
	require.IsIncreasing(t, tokens)
}

func TestInterruptedDemoLeavesNothingBehind(t *testing.T) {
	check := func(t *testing.T, moment string, err error) {
		if moment != "in time" { // which is written in the end
			require.Error(t, err)
		}
	}
	sandboxtest.Interrupt(t, "service", run(t, 2*time.Second), check, "Three", "hello", "SIGTERM", "hello again", "stops", "in time")
}

func TestDemoFailsOnABadConnectString(t *testing.T) {
	t.Parallel()
	require.Error(t, demo(t.Context(), io.Discard, "zk1:port", sessionTimeout))
}
