package clock_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/clock"
)

func TestStepsMoveTheWallClockFromThenOn(t *testing.T) {
	defer clock.Reset()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		passed := func() time.Duration { return clock.Wall(time.Now()).Sub(clock.Wall(began)) }
		require.Equal(t, began.Round(0), clock.Wall(began))
		time.Sleep(time.Second)
		clock.Step(time.Hour)
		require.Equal(t, time.Hour+time.Second, passed())
		require.Equal(t, time.Second, time.Since(began))
		time.Sleep(time.Second)
		clock.Step(-2 * time.Hour)
		require.Equal(t, 2*time.Second-time.Hour, passed())
		clock.Reset()
		require.Equal(t, 2*time.Second, passed())
	})
}
