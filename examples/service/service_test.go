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
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// sessionTimeout is so long that no slow replica loses its session. The one that is stopped does.
const sessionTimeout = 6 * time.Second

func TestMain(m *testing.M) {
	if slices.Contains(os.Args, "-replica") { // the test binary starts copies of itself
		main()
		os.Exit(0)
	}
	suite.Main(m)
}

func TestLateWriteOfAFormerLeaderIsRefused(t *testing.T) {
	t.Parallel()
	suite.SkipShort(t)
	requireFacts(t, "")
}

func TestServiceOnAnEnsemble(t *testing.T) {
	suite.InRealTime(t, func(t *testing.T, srv *recipestest.Server) {
		requireFacts(t, srv.ConnectString())
		requireNothingLeft(t, srv)
	})
}

// requireFacts runs the demo, and checks the output for what it promises.
func requireFacts(t *testing.T, servers string) {
	t.Helper()
	var out strings.Builder
	err := demo(t.Context(), &out, servers, sessionTimeout)
	t.Log(out.String())
	require.NoError(t, err)

	facts := regexp.MustCompile(`^Three replicas, .*
(\S+), after \S+ s, writes "hello" with token (\d+)

(\S+) gets SIGTERM, and ends\.
(\S+), after \S+ s, writes "hello again" with token (\d+)

(\S+) stops after it has looked .*
(\S+), after (\S+) s, writes "in time" with token (\d+)
(\S+), after \S+ s, does not write: election: /service/leader: lost: .*
$`).FindStringSubmatch(out.String())
	require.NotNil(t, facts)
	first, second, third := facts[1], facts[4], facts[7]
	require.Equal(t, []string{first, second, second}, []string{facts[3], facts[6], facts[10]})
	require.NotContains(t, []string{first, second}, third)
	require.NotEqual(t, first, second)

	var tokens []int64
	for _, token := range []string{facts[2], facts[5], facts[9]} {
		number, err := strconv.ParseInt(token, 10, 64)
		require.NoError(t, err)
		tokens = append(tokens, number)
	}
	require.IsIncreasing(t, tokens)
}

func TestInterruptedDemoLeavesNothingBehind(t *testing.T) {
	for _, moment := range []string{"Three", "hello", "SIGTERM", "hello again", "stops", "in time"} {
		t.Run(moment, func(t *testing.T) {
			t.Parallel()
			srv := recipestest.Start(t)
			ctx, interrupt := context.WithCancel(t.Context())
			defer interrupt()
			out := writer(func(b []byte) (int, error) {
				if strings.Contains(string(b), moment) {
					interrupt()
				}
				return len(b), nil
			})
			err := demo(ctx, out, srv.ConnectString(), 2*time.Second)
			if moment != "in time" { // which is written in the end
				require.Error(t, err)
			}
			requireNothingLeft(t, srv)
		})
	}
}

type writer func([]byte) (int, error)

func (w writer) Write(b []byte) (int, error) { return w(b) }

func TestDemoFailsOnABadConnectString(t *testing.T) {
	t.Parallel()
	require.Error(t, demo(t.Context(), io.Discard, "zk1:port", sessionTimeout))
}

// requireNothingLeft checks that no path of a demo is left, and no process.
func requireNothingLeft(t *testing.T, srv *recipestest.Server) {
	t.Helper()
	for _, node := range suite.Children(t, srv.Client(t), "/") {
		require.NotContains(t, node, "service-")
	}
	ps, err := exec.Command("ps", "-e", "-o", "args").Output()
	require.NoError(t, err)
	require.NotContains(t, string(ps), "-servers "+srv.ConnectString()+"/service-")
}
