package main

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) {
	if slices.Contains(os.Args, "-worker") { // the test binary starts copies of itself
		main()
		os.Exit(0)
	}
	sessionTimeout = 6 * time.Second // only the worker that is killed loses its session
	os.Exit(m.Run())
}

func TestMailOfAKilledWorkerComesBack(t *testing.T) {
	var out strings.Builder
	err := show(t.Context(), &out)
	t.Log(out.String())
	require.NoError(t, err)

	require.Contains(t, out.String(), "is killed")
	require.Contains(t, out.String(), fatal+", attempt 2")
	for _, to := range []string{"ann", "bob", "eve", "fred", "gil", "hal"} {
		require.Contains(t, out.String(), "delivers mail to "+to+", attempt 1")
	}
	require.Equal(t, 3, strings.Count(out.String(), "delivers mail "+dead))
	require.Contains(t, out.String(), "no such mailbox\nFin.")
}
