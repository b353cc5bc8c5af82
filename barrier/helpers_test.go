package barrier_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/barrier"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

func TestMain(m *testing.M) { suite.Main(m) }

type group = suite.Group

// requireSet demands that a short Wait times out.
func requireSet(t *testing.T, b *barrier.Barrier, why ...any) {
	t.Helper()
	ctx := suite.Within(t, 100*time.Millisecond)
	require.ErrorIs(t, b.Wait(ctx), context.DeadlineExceeded, why...)
}

// requireOpen demands that a Wait ends, though no removal is under way.
func requireOpen(t *testing.T, b *barrier.Barrier) {
	t.Helper()
	require.NoError(t, b.Wait(suite.Lasting(t)))
}

// kinds are the options of the barriers that can be set.
var kinds = map[string][]barrier.Option{
	"persistent": nil,
	"ephemeral":  {barrier.WithEphemeral()},
}

func eachKind(t *testing.T, test func(*testing.T, *recipestest.Server, []barrier.Option)) {
	for name, opts := range kinds {
		t.Run(name, func(t *testing.T) {
			suite.Each(t, func(t *testing.T, srv *recipestest.Server) { test(t, srv, opts) })
		})
	}
}
