package main

import (
	"context"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
	"github.com/zkrecipes/zkrecipes/recipestest/ensemble"
)

func TestMain(m *testing.M) {
	if slices.Contains(os.Args, "-worker") { // the test binary starts copies of itself
		main()
		os.Exit(0)
	}
	sessionTimeout = 6 * time.Second // only killed workers lose their session, and slow ones do not
	suite.Main(m)
}

func TestBatchOnTheEmbeddedServer(t *testing.T) {
	t.Parallel()
	requireDone(t, "")
}

func TestBatchOnAnEnsemble(t *testing.T) {
	t.Parallel()
	servers := ensemble.Real(t).ConnectString()
	requireDone(t, servers)
	requireNothingLeft(t, servers)
}

func requireDone(t *testing.T, servers string) {
	t.Helper()
	var out strings.Builder
	err := run(t.Context(), &out, servers)
	t.Log(out.String())
	require.NoError(t, err)
	require.Contains(t, out.String(), "Fin.")
	require.Regexp(t, `(?s)phase 2 +begins.*is killed +while it is at (task-2\.\d+).*attempt 2.*phase 2 +ends +24.*phase 3 +begins +with 5`,
		out.String())
	require.Regexp(t, `(?s)phase 3.*worker 5 +joins +phase 3`, out.String())
}

func TestInterruptedBatchLeavesNothingBehind(t *testing.T) {
	for _, moment := range []string{"starts", "phase 1   begins", "is killed", "phase 3   goes on"} {
		t.Run(moment, func(t *testing.T) {
			t.Parallel()
			server, err := embedded.Start(embedded.Config{TickTime: sessionTimeout / 4})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, server.Close()) })
			ctx, interrupt := context.WithCancel(t.Context())
			defer interrupt()
			out := writer(func(b []byte) (int, error) {
				if strings.Contains(string(b), moment) {
					interrupt()
				}
				return len(b), nil
			})

			require.ErrorIs(t, run(ctx, out, server.ConnectString()), context.Canceled)
			requireNothingLeft(t, server.ConnectString())
		})
	}
}

type writer func([]byte) (int, error)

func (w writer) Write(b []byte) (int, error) { return w(b) }

// requireNothingLeft checks that only the nodes of the start are left, and no process.
func requireNothingLeft(t *testing.T, servers string) {
	t.Helper()
	c, err := protocol.Connect(t.Context(), servers)
	require.NoError(t, err)
	defer c.Close()
	s, err := c.Session(t.Context())
	require.NoError(t, err)
	nodes, _, err := s.Conn().Children("/")
	require.NoError(t, err)
	require.Equal(t, []string{"zookeeper"}, nodes)
	ps, err := exec.Command("ps", "-e", "-o", "args").Output()
	require.NoError(t, err)
	require.NotContains(t, string(ps), "-servers "+servers)
}
