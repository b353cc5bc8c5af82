package protocol_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/clock"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// It is not parallel: a step is seen by every client of the process.
func TestWallClockThatIsStepped(t *testing.T) {
	defer clock.Reset()
	recipestest.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/p"
		c := srv.Client(t, protocol.WithSessionTimeout(4*time.Second))
		g := hold(t, c, path)

		// Back: nothing is lost, and nothing lives longer.
		clock.Step(-time.Hour)
		require.NoError(t, g.Err())
		time.Sleep(time.Minute)
		require.NoError(t, g.Err())

		// Forward by less than the trust that is left, and by more, like a machine that wakes up.
		time.Sleep(100 * time.Millisecond)
		clock.Step(time.Millisecond)
		require.NoError(t, g.Err())
		clock.Step(4 * time.Second)
		require.ErrorIs(t, g.Err(), protocol.ErrLost)
		next := hold(t, srv.Client(t), path)
		release(t, next)
	})
}
