package main

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/examples/internal/sandbox/sandboxtest"
	"github.com/zkrecipes/zkrecipes/internal/suite"
)

func TestMain(m *testing.M) { suite.Main(m) }

// at returns the tour at a pace.
func at(pace time.Duration) sandboxtest.Example {
	return func(ctx context.Context, out io.Writer, servers string) error { return run(ctx, out, servers, pace) }
}

func TestTourShowsWhatTheRecipesPromise(t *testing.T) {
	sandboxtest.Run(t, "tour", at(5*time.Millisecond), func(t *testing.T, out string, ensemble bool) {
		if ensemble {
			requireFacts(t, out, "an operator +(?:breaks the lock|deposes) +of", "node was deleted: \\S+")
		} else {
			requireFacts(t, out, "ZooKeeper +ends a session +that of", "session 0x\\w+ expired")
		}
	})
}

func TestInterruptedTourLeavesNothingBehind(t *testing.T) {
	noOtherError := func(t *testing.T, _ string, err error) {
		require.ErrorIs(t, err, context.Canceled)
		require.EqualError(t, err, context.Canceled.Error())
	}
	sandboxtest.Interrupt(t, "tour", at(20*time.Millisecond), noOtherError,
		"A tour", "The exclusive lock", "holds the lock", "waits in line", "breaks the lock", "is told to stop",
		"reader 2", "reader 3", "downgrades", "Leader election", "candidate 3", "deposes", "resigns",
		"a producer", "crashes", "does", "member 2", "goes in", "is ready to go", "goes out")
}

func TestTourFailsOnABadConnectString(t *testing.T) {
	t.Parallel()
	require.Error(t, run(t.Context(), io.Discard, "zk1:port", time.Millisecond))
}

// requireFacts checks the output for what the recipes promise.
func requireFacts(t *testing.T, out, strike, loss string) {
	t.Helper()
	requireIncreasing(t, out,
		`worker 2 +waits in line +behind worker 1\n`,
		`worker 3 +waits in line +behind worker 2\n`,
		`worker 4 +waits in line +behind worker 3\n`,
		`worker 5 +waits in line +behind worker 4\n`,
		`worker 1 +holds the lock +token (\d+)\n`,
		`worker 1 +gives it back\n`,
		`worker 2 +holds the lock +token (\d+), .* ms later\n`,
		`worker 2 +gives it back\n`,
		`worker 3 +holds the lock +token (\d+), .* ms later\n`,
		strike+` worker 3`,
		`worker 3 +is told to stop +lock: /lock: lost: `+loss+`\n`,
		`worker 4 +holds the lock +token (\d+), .* ms later\n`,
		`worker 4 +gives it back\n`,
		`worker 5 +holds the lock +token (\d+), .* ms later\n`,
		`worker 5 +gives it back\n`)

	requireIncreasing(t, out,
		`reader 1 +reads +token (\d+)\n`,
		`reader 2 +reads +token (\d+), together with reader 1\n`,
		`writer 1 +waits in line +behind reader 2\n`,
		`reader 3 +waits in line +behind writer 1\n`,
		`writer 2 +waits in line +behind reader 3\n`,
		`reader 1 +gives it back\n`,
		`reader 2 +gives it back\n`,
		`writer 1 +writes +token (\d+), alone\n`,
		`writer 1 +downgrades\n`,
		`reader 3 +reads +token (\d+), together with writer 1\n`,
		`writer 1 +gives it back\n`,
		`reader 3 +gives it back\n`,
		`writer 2 +writes +token (\d+), alone\n`,
		`writer 2 +gives it back\n`)

	requireIncreasing(t, out,
		`candidate 2 +waits in line +behind candidate 1\n`,
		`candidate 3 +waits in line +behind candidate 2\n`,
		`candidate 1 +leads +token (\d+)\n`,
		`an observer +sees +that candidate 1 leads\n`,
		strike+` candidate 1`,
		`candidate 1 +is told to stop +election: /election: lost: `+loss+`\n`,
		`candidate 2 +leads +token (\d+), .* ms later\n`,
		`an observer +sees +that candidate 2 leads\n`,
		`candidate 2 +resigns\n`,
		`candidate 3 +leads +token (\d+), .* ms later\n`,
		`an observer +sees +that candidate 3 leads\n`,
		`candidate 3 +resigns\n`,
		`an observer +sees +that no candidate leads\n`)

	requireOrder(t, out,
		`a producer +offers +qn-\d+ to qn-\d+\n`,
		`worker 1 +reserves +job 1, attempt 1\n`,
		`worker 1 +crashes`,
		`worker 2 +does +job 1, attempt 2\n`)
	for job := 2; job <= 6; job++ {
		require.Len(t, regexp.MustCompile(fmt.Sprintf(`worker 2 +does +job %d, attempt 1\n`, job)).FindAllString(out, -1), 1)
	}
	checkDoubleBarrier(t, out)
}

func requireIncreasing(t *testing.T, out string, patterns ...string) {
	t.Helper()
	tokens := requireOrder(t, out, patterns...)
	require.IsIncreasing(t, tokens)
}

// checkDoubleBarrier checks the output for the facts of the chapter on the double barrier. All
// members take each of the three steps before any member takes the next.
func checkDoubleBarrier(t *testing.T, out string) {
	t.Helper()
	var steps []string
	for _, found := range regexp.MustCompile(`member \d +(comes|goes in|is ready to go|goes out)\n`).FindAllStringSubmatch(out, -1) {
		steps = append(steps, found[1])
	}
	require.Len(t, steps, 12)
	for i, among := range [][]string{{"comes"}, {"goes in", "is ready to go"}, {"goes in", "is ready to go"}, {"goes out"}} {
		for _, step := range steps[3*i : 3*i+3] {
			require.Contains(t, among, step, steps)
		}
	}
}

// requireOrder checks that out matches the patterns in this order, and returns the numbers in
// parentheses.
func requireOrder(t *testing.T, out string, patterns ...string) (numbers []int64) {
	t.Helper()
	for _, p := range patterns {
		found := regexp.MustCompile(p).FindStringSubmatchIndex(out)
		require.NotNil(t, found, "%s is not in\n%s", p, out)
		if len(found) > 2 {
			n, err := strconv.ParseInt(out[found[2]:found[3]], 10, 64)
			require.NoError(t, err)
			numbers = append(numbers, n)
		}
		out = out[found[1]:]
	}
	return numbers
}
