package protocol

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestContendersOfABusySessionDoNotWakeItsKeeper lets contenders come and go, whose requests renew
// trust. The keeper has nothing to do then before the time at which it wakes by itself.
func TestContendersOfABusySessionDoNotWakeItsKeeper(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSession(nil)
		s.trust.timeout = 12 * second
		s.trust.began(time.Now())
		s.wakes = time.Now().Add(s.trust.timeout) // its keeper idles

		s.engage()
		require.Len(t, s.wake, 1, "a request is due earlier")
		<-s.wake
		s.wakes, _ = s.due(time.Now(), false)
		s.disengage()

		for range 10 {
			time.Sleep(second / 10)
			s.trust.answered(time.Now(), time.Now(), byQuorum)
			s.engage()
			s.disengage()
		}
		require.Empty(t, s.wake)

		s.trust.troubled = time.Now()
		s.trust.confirmed = time.Now().Add(-second)
		s.wakes = time.Now().Add(second)
		s.engage()
		require.Len(t, s.wake, 1, "answers have begun to be late")
	})
}
