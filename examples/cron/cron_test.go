package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

func TestMain(m *testing.M) { suite.Main(m) }

func TestOneMachineWritesTheReport(t *testing.T) {
	t.Parallel()
	requireOneReport(t, "")
}

func TestMachinesMeetOnAnEnsemble(t *testing.T) {
	suite.InRealTime(t, func(t *testing.T, srv *recipestest.Server) {
		requireOneReport(t, srv.ConnectString())
		for _, node := range suite.Children(t, srv.Client(t), "/") {
			require.NotContains(t, node, "cron-")
		}
	})
}

func requireOneReport(t *testing.T, servers string) {
	t.Helper()
	var out strings.Builder
	err := run(t.Context(), &out, servers)
	t.Log(out.String())
	require.NoError(t, err)

	first, second, ok := strings.Cut(out.String(), "The second night")
	require.True(t, ok)
	require.Equal(t, 1, strings.Count(first, "writes the report of 2030-01-31\n"))
	require.Equal(t, 2, strings.Count(first, "finds the job done\n"))

	require.Equal(t, 1, strings.Count(second, "machine 1 writes the report of 2030-02-01\n"))
	require.Equal(t, 1, strings.Count(second, "writes the report"), "the machine that dies has written it")
	require.Equal(t, 1, strings.Count(second, "machine 1 dies\n"))
	require.Equal(t, 1, strings.Count(second, "finds the report of 2030-02-01 in the store\n"))
	require.Equal(t, 1, strings.Count(second, "finds the job done\n"))
	require.Equal(t, 5, strings.Count(out.String(), "has fetched it\n"))
}
