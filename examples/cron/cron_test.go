package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/examples/internal/sandbox/sandboxtest"
	"github.com/zkrecipes/zkrecipes/internal/suite"
)

func TestMain(m *testing.M) { suite.Main(m) }

func TestOneMachineWritesTheReport(t *testing.T) {
	sandboxtest.Run(t, "cron", run, requireOneReport)
}

func requireOneReport(t *testing.T, out string, _ bool) {
	t.Helper()
	first, second, ok := strings.Cut(out, "The second night")
	require.True(t, ok)
	require.Equal(t, 1, strings.Count(first, "writes the report of 2030-01-31\n"))
	require.Equal(t, 2, strings.Count(first, "finds the job done\n"))

	require.Equal(t, 1, strings.Count(second, "machine 1 writes the report of 2030-02-01\n"))
	require.Equal(t, 1, strings.Count(second, "writes the report"), "the machine that dies has written it")
	require.Equal(t, 1, strings.Count(second, "machine 1 dies\n"))
	require.Equal(t, 1, strings.Count(second, "finds the report of 2030-02-01 in the store\n"))
	require.Equal(t, 1, strings.Count(second, "finds the job done\n"))
	require.Equal(t, 5, strings.Count(out, "has fetched it\n"))
}
