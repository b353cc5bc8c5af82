package barrier_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/zkrecipes/zkrecipes/barrier"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

func TestMain(m *testing.M) { suite.Main(m) }

type group = suite.Group

// requireSet demands that a short Wait times out.
func requireSet(t *testing.T, b *barrier.Barrier, why ...any) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, b.Wait(ctx), context.DeadlineExceeded, why...)
}

// requireOpen demands that a Wait ends, though no removal is under way.
func requireOpen(t *testing.T, b *barrier.Barrier) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), suite.Limit)
	defer cancel()
	require.NoError(t, b.Wait(ctx))
}

// waitEnds calls happen until a Wait that had begun before ends. If the connection broke before the
// waiter had looked at an answer, it reads again, and then waits at the next barrier. So one call
// of happen may not be enough.
func waitEnds(t *testing.T, waited <-chan error, happen func()) {
	t.Helper()
	for range 10 {
		happen()
		select {
		case err := <-waited:
			require.NoError(t, err)
			return
		case <-time.After(time.Second):
		}
	}
	require.Fail(t, "still waiting")
}

// settle waits until c has a session, and returns that. The session has then processed all answers
// that were delivered before, as it does so in order.
func settle(t *testing.T, c *protocol.Client) (s *recipe.Session) {
	t.Helper()
	for {
		s = suite.Session(t, c)
		suite.Exists(t, c, "/")
		if suite.Session(t, c).ID() == s.ID() {
			return s
		}
	}
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
