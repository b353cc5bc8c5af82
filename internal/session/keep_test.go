package session

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/trust"
)

// TestContendersOfABusySessionDoNotWakeItsKeeper lets contenders come and go, whose requests renew
// trust. The keeper has nothing to do then before the time at which it wakes by itself.
func TestContendersOfABusySessionDoNotWakeItsKeeper(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := Offline(12 * time.Second).current
		s.wakes = time.Now().Add(s.trust.Timeout()) // its keeper idles

		s.Engage()
		require.Len(t, s.wake, 1, "a request is due earlier")
		<-s.wake
		s.wakes, _ = s.due(time.Now(), false)
		s.Disengage()

		for range 10 {
			time.Sleep(time.Second / 10)
			s.trust.Answered(time.Now(), time.Now(), trust.Quorum)
			s.Engage()
			s.Disengage()
		}

		require.Empty(t, s.wake)

		asked := time.Now()
		time.Sleep(time.Second)
		s.trust.Answered(asked, time.Now(), trust.Quorum)
		s.wakes = time.Now().Add(time.Second)
		s.Engage()
		require.Len(t, s.wake, 1, "answers have begun to be late")
	})
}
