// Package sandboxtest runs the examples that open a sandbox.
package sandboxtest

import (
	"context"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// An Example prints to out. It runs on a ZooKeeper of its own, or below a path of its own on
// servers.
type Example func(ctx context.Context, out io.Writer, servers string) error

// Run runs the example of that name on a ZooKeeper of its own and on ensembles, where it must leave
// nothing. check checks its output.
func Run(t *testing.T, name string, example Example, check func(t *testing.T, out string, ensemble bool)) {
	run := func(t *testing.T, servers string) {
		var out strings.Builder
		err := example(t.Context(), &out, servers)
		t.Log(out.String())
		require.NoError(t, err)
		check(t, out.String(), servers != "")
	}
	t.Run("alone", func(t *testing.T) {
		t.Parallel()
		run(t, "")
	})
	t.Run("ensemble", func(t *testing.T) {
		suite.InRealTime(t, func(t *testing.T, srv *recipestest.Server) {
			run(t, srv.ConnectString())
			requireNothingLeft(t, srv, name)
		})
	})
}

// Interrupt runs the example of that name for each of its moments, and ends ctx when it prints that
// text. check checks its error. The example must leave nothing on its ensemble.
func Interrupt(t *testing.T, name string, example Example, check func(t *testing.T, moment string, err error), moments ...string) {
	for _, moment := range moments {
		t.Run(moment, func(t *testing.T) {
			t.Parallel()
			srv := recipestest.Start(t)
			ctx, interrupt := context.WithCancel(t.Context())
			defer interrupt()
			check(t, moment, example(ctx, interrupter{moment, interrupt}, srv.ConnectString()))
			requireNothingLeft(t, srv, name)
		})
	}
}

type interrupter struct {
	moment    string
	interrupt func()
}

func (i interrupter) Write(b []byte) (int, error) {
	if strings.Contains(string(b), i.moment) {
		i.interrupt()
	}
	return len(b), nil
}

func requireNothingLeft(t *testing.T, srv *recipestest.Server, name string) {
	t.Helper()
	for _, node := range suite.Children(t, srv.Client(t), "/") {
		require.NotContains(t, node, name+"-")
	}
}
