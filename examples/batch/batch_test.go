package main

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/examples/internal/sandbox/sandboxtest"
	"github.com/zkrecipes/zkrecipes/internal/suite"
)

func TestMain(m *testing.M) { suite.Main(m) }

func TestTaskOfADeadWorkerIsDone(t *testing.T) {
	sandboxtest.Run(t, "batch", run, requireDone)
}

func requireDone(t *testing.T, out string, _ bool) {
	t.Helper()
	for _, facts := range []string{
		`phase 1 +begins with 5 members.*phase 1 +ends with 0 of 24`,
		`phase 2 +begins with 5 members.*phase 2 +ends with 0 of 24`,
		`phase 3 +begins with 5 members.*phase 3 +ends with 0 of 24`,
		`worker \d +does task-2\.13, attempt 2.*phase 2 +ends`,
		`worker [1-4] +dies.*worker 5 +joins phase 3`,
	} {
		require.Regexp(t, "(?s)"+facts, out)
	}
	require.Equal(t, 1, strings.Count(out, " dies\n"))
}

func TestInterruptedBatchLeavesNothingBehind(t *testing.T) {
	canceled := func(t *testing.T, _ string, err error) { require.ErrorIs(t, err, context.Canceled) }
	sandboxtest.Interrupt(t, "batch", run, canceled, "3 phases", "phase 1   begins", "dies", "attempt 2", "joins phase 3")
}
