package session

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/trust"
)

// A thing is something that is held.
type thing struct {
	session *Session
	err     error
}

func (h *thing) Lose(err error) (*slog.Logger, Held) {
	h.err = err
	h.session.Dismiss(h, false)
	return nil, Held{}
}

// held returns a session with a timeout of twelve seconds that has just begun, and something that
// it holds.
func held(t *testing.T) (*Session, *thing) {
	s := Offline(12 * time.Second).current
	h := &thing{session: s}
	s.Engage()
	require.NoError(t, s.Admit(h))
	return s, h
}

// TestAnswerThatComesTooLateRenewsNothing delivers an answer before any goroutine has looked at the
// clocks.
func TestAnswerThatComesTooLateRenewsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, h := held(t)
		time.Sleep(7 * time.Second)
		asked := time.Now()
		time.Sleep(time.Second)
		host{s}.Answered(asked, time.Now(), trust.Quorum)
		host{s}.Answered(asked, time.Now(), trust.Leader)
		require.ErrorIs(t, s.Err(), ErrLost)
		require.ErrorIs(t, h.err, ErrLost)
	})
}

// TestHandshakeThatIsAnsweredTooLateResumesNothing delivers the answer before any goroutine has
// looked at the clocks.
func TestHandshakeThatIsAnsweredTooLateResumesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, h := held(t)
		time.Sleep(8 * time.Second)
		_, err := host{s}.Resume(time.Now(), 12*time.Second)
		require.ErrorIs(t, err, ErrLost)
		require.ErrorIs(t, s.Err(), ErrLost)
		require.ErrorIs(t, h.err, ErrLost)
	})
}

// TestTrustOfAResumption makes a handshake that takes three seconds. Trust runs from the dial, for
// as long as the server grants this time.
func TestTrustOfAResumption(t *testing.T) {
	t.Parallel()
	for granted, share := range map[time.Duration]time.Duration{
		12 * time.Second: 8 * time.Second, 6 * time.Second: 4 * time.Second,
	} {
		synctest.Test(t, func(t *testing.T) {
			s, _ := held(t)
			time.Sleep(time.Second)
			dialled := time.Now()
			time.Sleep(3 * time.Second)
			_, err := host{s}.Resume(dialled, granted)
			require.NoError(t, err)
			require.Equal(t, dialled.Add(share), s.Deadline())
		})
	}
}

// A session ends just before its grants end and its connections are cut.
func TestSessionThatIsOverHoldsNothing(t *testing.T) {
	t.Parallel()
	s, h := held(t)
	s.mu.Lock()
	s.err = ErrLost
	s.mu.Unlock()
	require.ErrorIs(t, s.Admit(new(thing)), ErrLost)
	_, err := host{s}.Resume(time.Now(), time.Second)
	require.ErrorIs(t, err, ErrLost)
	s.finish(ErrClosed)
	require.NotErrorIs(t, s.Err(), ErrClosed)
	require.NoError(t, h.err)
}

func TestUntrustedSessionGrantsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := Offline(12 * time.Second).current
		s.Engage()
		time.Sleep(9 * time.Second)
		require.NoError(t, s.Err(), "nothing is held, so nothing is lost")
		require.ErrorIs(t, s.Admit(new(thing)), ErrStale)
		time.Sleep(3 * time.Second)
		require.NoError(t, s.Err(), "silent for a whole timeout, and the servers may know it")
		require.ErrorIs(t, s.Admit(new(thing)), ErrStale)
	})
}

// A timer fires, and before its goroutine runs the connection comes back, lasts and breaks again.
func TestNoticeOfAnOutageThatIsOverIsNotGiven(t *testing.T) {
	t.Parallel()
	c := Offline(12 * time.Second)
	c.mu.Lock()
	c.beginOutage()
	c.mu.Unlock()
	c.tellOfOutage()
	require.False(t, c.outage.noticed)
}
