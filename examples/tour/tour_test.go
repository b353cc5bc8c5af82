package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
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

// requireFacts checks the output for what the recipes promise. For each chapter, the file has
// patterns of lines, which come in this order. In parentheses are tokens, which increase.
func requireFacts(t *testing.T, out, strike, loss string) {
	t.Helper()
	text := suite.Got(os.ReadFile("testdata/facts.txt"))(t)
	facts := strings.NewReplacer("STRIKE", strike, "LOSS", loss).Replace(string(text))
	for chapter := range strings.SplitSeq(strings.TrimSpace(facts), "\n\n") {
		require.IsIncreasing(t, requireOrder(t, out, strings.Split(chapter, "\n")...))
	}

	for job := 2; job <= 6; job++ {
		require.Len(t, regexp.MustCompile(fmt.Sprintf(`worker 2 +does +job %d, attempt 1\n`, job)).FindAllString(out, -1), 1)
	}
	checkDoubleBarrier(t, out)
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

// requireOrder checks that out has lines with these patterns in this order, and returns the numbers
// in parentheses.
func requireOrder(t *testing.T, out string, patterns ...string) (numbers []int64) {
	t.Helper()
	for _, p := range patterns {
		found := regexp.MustCompile(p + "\n").FindStringSubmatchIndex(out)
		require.NotNil(t, found, "%s is not in\n%s", p, out)
		if len(found) > 2 {
			n := suite.Got(strconv.ParseInt(out[found[2]:found[3]], 10, 64))(t)
			numbers = append(numbers, n)
		}
		out = out[found[1]:]
	}
	return numbers
}
