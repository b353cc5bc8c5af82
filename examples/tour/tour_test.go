package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

func TestMain(m *testing.M) { suite.Main(m) }

func TestTourOfTheEmbeddedServer(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	require.NoError(t, run(t.Context(), &out, options{workers: 5, pace: 5 * time.Millisecond}))
	checkLock(t, out.String(), 5)
	checkSharedLock(t, out.String())
	checkElection(t, out.String(), "ends a session")
	checkQueue(t, out.String())
	checkDoubleBarrier(t, out.String())
	require.Regexp(t, `worker 3 +is told to stop .*\n +lock: /tour-\w+/lock: lost: session 0x\w+ expired\n`, out.String())
}

func TestTourOfAnEnsemble(t *testing.T) {
	t.Parallel()
	servers := ensembleOf(t)
	var out strings.Builder
	require.NoError(t, run(t.Context(), &out, options{servers: servers, workers: 2, pace: 5 * time.Millisecond}))
	checkLock(t, out.String(), 2)
	checkSharedLock(t, out.String())
	checkElection(t, out.String(), "deposes")
	checkQueue(t, out.String())
	checkDoubleBarrier(t, out.String())
	require.Regexp(t, `worker 1 +is told to stop .*\n +lock: /tour-\w+/lock: lost: node was deleted: \S+\n`, out.String())
	requireEmpty(t, servers)
}

func TestInterruptedTourLeavesNothingBehind(t *testing.T) {
	for _, moment := range []string{
		"before it begins", "gets the lock", "waits in line", "breaks the lock", "is told to stop",
		"reader 2", "reader 3", "downgrades", "candidate 1", "candidate 3", "deposes", "resigns",
		"a producer", "crashes", "does", "member 2", "goes in", "is ready to go", "goes out",
	} {
		t.Run(moment, func(t *testing.T) {
			t.Parallel()
			servers := ensembleOf(t)
			ctx, interrupt := context.WithCancelCause(t.Context())
			defer interrupt(nil)
			out := writer(func(b []byte) (int, error) {
				if strings.Contains(string(b), moment) {
					interrupt(errors.New("signal"))
				}
				return len(b), nil
			})

			if moment == "before it begins" {
				interrupt(nil) // before it has begun
			}

			err := run(ctx, out, options{servers: servers, workers: 4, pace: 50 * time.Millisecond})
			require.ErrorIs(t, err, errInterrupted)
			require.EqualError(t, err, errInterrupted.Error(), "no other error")
			requireEmpty(t, servers)
		})
	}
}

func TestTourFailsOnABadConnectString(t *testing.T) {
	t.Parallel()
	require.Error(t, run(t.Context(), io.Discard, options{servers: "zk1:port", workers: 2}))
}

type writer func([]byte) (int, error)

func (w writer) Write(b []byte) (int, error) { return w(b) }

// checkLock checks the output for the facts of the chapter on the lock.
func checkLock(t *testing.T, out string, workers int) {
	t.Helper()
	t.Log(out)
	tokens := regexp.MustCompile(`worker (\d+) +gets the lock +token (\d+)`).FindAllStringSubmatch(out, -1)
	require.Len(t, tokens, workers)
	last := int64(0)

	for i, found := range tokens {
		require.Equal(t, strconv.Itoa(i+1), found[1], "order of arrival")
		token, err := strconv.ParseInt(found[2], 10, 64)
		require.NoError(t, err)
		require.Greater(t, token, last, "tokens increase")
		last = token
	}

	victim := (workers + 1) / 2

	for i := 1; i <= workers; i++ {
		gives := regexp.MustCompile(fmt.Sprintf(`worker %d +gives it back`, i)).MatchString(out)
		require.Equal(t, i != victim, gives, "worker %d gives it back", i)
		if i > 1 {
			require.Regexp(t, fmt.Sprintf(`worker %d +waits in line +behind worker %d\n`, i, i-1), out)
		}
	}

	require.Regexp(t, fmt.Sprintf(`(?s)(ends a session|breaks the lock) .*worker %d\b.*worker %d +gets the lock`,
		victim, victim+1), out, "the next one takes over")
}

// checkSharedLock checks the output for the facts of the chapter on the shared lock.
func checkSharedLock(t *testing.T, out string) {
	t.Helper()
	tokens := requireOrder(t, out,
		`reader 1 +reads +token (\d+)\n`,
		`reader 2 +reads +token \d+, together with reader 1\n`,
		`writer 1 +waits in line +behind reader 2\n`,
		`reader 3 +waits in line +behind writer 1\n`,
		`writer 2 +waits in line +behind reader 3\n`,
		`reader 1 +gives it back\n`,
		`reader 2 +gives it back\n`,
		`writer 1 +writes +token (\d+), alone\n`,
		`writer 1 +downgrades `,
		`reader 3 +reads +token \d+, together with writer 1\n`,
		`writer 1 +gives it back\n`,
		`reader 3 +gives it back\n`,
		`writer 2 +writes +token (\d+), alone\n`,
		`writer 2 +gives it back\n`)

	require.Len(t, tokens, 3)
	require.IsIncreasing(t, tokens)
}

// checkElection checks the output for the facts of the chapter on leader election.
func checkElection(t *testing.T, out, strike string) {
	t.Helper()
	tokens := requireOrder(t, out,
		`candidate 1 +leads +token (\d+)\n`,
		`an observer +sees +that candidate 1 leads\n`,
		`candidate 2 +waits in line +behind candidate 1\n`,
		`candidate 3 +waits in line +behind candidate 2\n`,
		strike+` .*candidate 1, `,
		`candidate 2 +leads +token (\d+), .* ms later\n`,
		`an observer +sees +that candidate 2 leads\n`,
		`candidate 1 +is told to stop .*\n.* lost: `,
		`candidate 2 +resigns\n`,
		`candidate 3 +leads +token (\d+), .* ms later\n`,
		`an observer +sees +that candidate 3 leads\n`,
		`candidate 3 +resigns\n`,
		`an observer +sees +that no candidate leads\n`)

	require.Len(t, tokens, 3)
	require.IsIncreasing(t, tokens)
}

// checkQueue checks the output for the facts of the chapter on the queue.
func checkQueue(t *testing.T, out string) {
	t.Helper()
	requireOrder(t, out,
		`a producer +offers +qn-0000000001 to qn-0000000006\n`,
		`worker 1 +reserves +job 1, attempt 1\n`,
		`worker 1 +crashes`,
		`worker [23] +does +job 1, attempt 2\n`)
	for job := 2; job <= 6; job++ {
		require.Len(t, regexp.MustCompile(fmt.Sprintf(`worker [23] +does +job %d, attempt 1\n`, job)).FindAllString(out, -1), 1)
	}
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

// ensembleOf starts a server that the tour must treat as a real ensemble.
func ensembleOf(t *testing.T) (connectString string) {
	t.Helper()
	server, err := embedded.Start(embedded.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Close()) })
	return server.ConnectString()
}

// requireEmpty checks that only the nodes of the start are left.
func requireEmpty(t *testing.T, servers string) {
	t.Helper()
	c, err := protocol.Connect(t.Context(), servers)
	require.NoError(t, err)
	defer c.Close()
	s, err := c.Session(t.Context())
	require.NoError(t, err)
	nodes, _, err := s.Conn().Children("/")
	require.NoError(t, err)
	require.Equal(t, []string{"zookeeper"}, nodes)
}
