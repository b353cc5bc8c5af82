package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

func TestMain(m *testing.M) { suite.Main(m) }

func TestMailOfADeadWorkerComesBack(t *testing.T) {
	t.Parallel()
	requireDelivered(t, "")
}

func TestWorkersShareAnEnsemble(t *testing.T) {
	suite.InRealTime(t, func(t *testing.T, srv *recipestest.Server) {
		requireDelivered(t, srv.ConnectString())
		for _, node := range suite.Children(t, srv.Client(t), "/") {
			require.NotContains(t, node, "workqueue-")
		}
	})
}

func requireDelivered(t *testing.T, servers string) {
	t.Helper()
	var out strings.Builder
	err := run(t.Context(), &out, servers)
	t.Log(out.String())
	require.NoError(t, err)

	require.Equal(t, 1, strings.Count(out.String(), " dies."))
	require.Contains(t, out.String(), fatal+", attempt 2")
	for _, to := range []string{"ann", "bob", "eve", "fred", "gil", "hal"} {
		require.Contains(t, out.String(), "delivers mail to "+to+", attempt 1")
	}
	require.Equal(t, 3, strings.Count(out.String(), "delivers mail "+dead))
	require.Regexp(t, `dead letters:\n  from /mail/out/.*\nFin\.\n$`, out.String())
}
