package main

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

func TestMain(m *testing.M) { suite.Main(m) }

func TestTaskOfADeadWorkerIsDone(t *testing.T) {
	t.Parallel()
	requireDone(t, "")
}

func TestBatchOnAnEnsemble(t *testing.T) {
	suite.InRealTime(t, func(t *testing.T, srv *recipestest.Server) {
		requireDone(t, srv.ConnectString())
		requireNothingLeft(t, srv)
	})
}

func requireDone(t *testing.T, servers string) {
	t.Helper()
	var out strings.Builder
	err := run(t.Context(), &out, servers)
	t.Log(out.String())
	require.NoError(t, err)
	for _, facts := range []string{
		`phase 1 +begins with 5 members.*phase 1 +ends with 0 of 24`,
		`phase 2 +begins with 5 members.*phase 2 +ends with 0 of 24`,
		`phase 3 +begins with 5 members.*phase 3 +ends with 0 of 24`,
		`worker \d +does task-2\.13, attempt 2.*phase 2 +ends`,
		`worker [1-4] +dies.*worker 5 +joins phase 3`,
	} {
		require.Regexp(t, "(?s)"+facts, out.String())
	}
	require.Equal(t, 1, strings.Count(out.String(), " dies\n"))
}

func TestInterruptedBatchLeavesNothingBehind(t *testing.T) {
	for _, moment := range []string{"3 phases", "phase 1   begins", "dies", "attempt 2", "joins phase 3"} {
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

			require.ErrorIs(t, run(ctx, out, srv.ConnectString()), context.Canceled)
			requireNothingLeft(t, srv)
		})
	}
}

type writer func([]byte) (int, error)

func (w writer) Write(b []byte) (int, error) { return w(b) }

func requireNothingLeft(t *testing.T, srv *recipestest.Server) {
	t.Helper()
	for _, node := range suite.Children(t, srv.Client(t), "/") {
		require.NotContains(t, node, "batch-")
	}
}
