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
	if slices.Contains(os.Args, "-machine") { // the test binary starts copies of itself
		main()
		os.Exit(0)
	}
	sessionTimeout = 6 * time.Second // only the machine that dies loses its session
	os.Exit(m.Run())
}

func TestOneMachineWritesTheReport(t *testing.T) {
	var out strings.Builder
	err := show(t.Context(), &out)
	t.Log(out.String())
	require.NoError(t, err)

	first, second, ok := strings.Cut(out.String(), "The second night")
	require.True(t, ok)
	require.Equal(t, 1, strings.Count(first, "writes the report of"))
	require.Equal(t, 2, strings.Count(first, "finds the report written"))
	require.Equal(t, 2, strings.Count(second, "writes the report of"), "the one that dies, and another one")
	require.Equal(t, 1, strings.Count(second, "finds the report written"))
	require.Equal(t, 5, strings.Count(out.String(), "has fetched it"))
	require.Contains(t, second, "Fin.")
}
