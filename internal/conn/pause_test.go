package conn

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestPauseAfterEveryServerWasTried(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		servers := rapid.IntRange(1, 9).Draw(t, "servers")
		failures := rapid.IntRange(0, math.MaxInt32).Draw(t, "failures")
		timeout := time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "timeout"))
		f := search{at: rapid.SampledFrom([]Stake{StakeNothing, StakePlace, StakeGrant}).Draw(t, "stake")}
		f.slow = f.at == StakeNothing && rapid.Bool().Draw(t, "slow")
		pause := pauseAfter(failures, servers, timeout, f)
		switch {
		case f.slow:
			require.Less(t, pause, 2*slowPause)
		case failures < servers, failures%servers != 0:
			require.Zero(t, pause)
		case f.at == StakePlace:
			require.GreaterOrEqual(t, pause, 5*time.Millisecond)
			require.LessOrEqual(t, pause, max(timeout/4, 15*time.Millisecond))
		default:
			require.GreaterOrEqual(t, pause, 5*time.Millisecond)
			require.Less(t, pause, 1500*time.Millisecond)
			require.Less(t, pause, max(timeout/10, 15*time.Millisecond))
		}
	})
}
