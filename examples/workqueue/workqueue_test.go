package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/examples/internal/sandbox/sandboxtest"
	"github.com/zkrecipes/zkrecipes/internal/suite"
)

func TestMain(m *testing.M) { suite.Main(m) }

func TestMailOfADeadWorkerComesBack(t *testing.T) {
	sandboxtest.Run(t, "workqueue", run, requireDelivered)
}

func requireDelivered(t *testing.T, out string, _ bool) {
	t.Helper()
	require.Equal(t, 1, strings.Count(out, " dies."))
	require.Contains(t, out, fatal+", attempt 2")
	for _, to := range []string{"ann", "bob", "eve", "fred", "gil", "hal"} {
		require.Contains(t, out, "delivers mail to "+to+", attempt 1")
	}
	require.Equal(t, 3, strings.Count(out, "delivers mail "+dead))
	require.Regexp(t, `dead letters:\n  from /mail/out/.*\nFin\.\n$`, out)
}
