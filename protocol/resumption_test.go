package protocol

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/conn"
	"github.com/zkrecipes/zkrecipes/internal/trust"
)

// offline returns a client that has no servers, and starts no goroutines.
func offline() *Client {
	shared := &sessions{ensemble: conn.NewEnsemble(), stopped: true}
	return &Client{sessions: shared, log: slog.New(slog.DiscardHandler), observer: noObserver{}}
}

// held returns a session with a timeout of twelve seconds that has just begun, and something that
// it holds.
func held(t *testing.T) (*Session, *Grant) {
	c := offline()
	s := newSession(c)
	s.trust.Began(time.Now(), 12*time.Second)
	s.engage()
	g, err := newGrant(context.Background(), NewRecipe(c, "test", "/line"), s, "/line/node", 1, false, nil)
	require.NoError(t, err)
	return s, g
}

// TestAnswerThatComesTooLateRenewsNothing delivers an answer before any goroutine has looked at the
// clocks.
func TestAnswerThatComesTooLateRenewsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, g := held(t)
		time.Sleep(7 * time.Second)
		asked := time.Now()
		time.Sleep(time.Second)
		host[*Grant]{s.session}.Answered(asked, time.Now(), trust.Quorum)
		host[*Grant]{s.session}.Answered(asked, time.Now(), trust.Leader)
		require.ErrorIs(t, g.Err(), ErrLost)
		require.ErrorIs(t, s.Err(), ErrLost)
	})
}

// TestHandshakeThatIsAnsweredTooLateResumesNothing delivers the answer before any goroutine has
// looked at the clocks.
func TestHandshakeThatIsAnsweredTooLateResumesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, g := held(t)
		time.Sleep(8 * time.Second)
		_, err := host[*Grant]{s.session}.Resume(time.Now(), 12*time.Second)
		require.ErrorIs(t, err, ErrLost)
		require.ErrorIs(t, g.Err(), ErrLost)
		require.ErrorIs(t, s.Err(), ErrLost)
	})
}

// TestTrustRunsFromTheDialNotFromTheAnswer makes a handshake that takes three seconds.
func TestTrustRunsFromTheDialNotFromTheAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, _ := held(t)
		time.Sleep(time.Second)
		dialled := time.Now()
		time.Sleep(3 * time.Second)
		_, err := host[*Grant]{s.session}.Resume(dialled, 12*time.Second)
		require.NoError(t, err)
		require.Equal(t, dialled.Add(8*time.Second), s.Deadline())
	})
}

// TestTrustFollowsTheTimeoutOfAResumption resumes at a server that grants half of the first
// timeout.
func TestTrustFollowsTheTimeoutOfAResumption(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, _ := held(t)
		_, err := host[*Grant]{s.session}.Resume(time.Now(), 6*time.Second)
		require.NoError(t, err)
		require.Equal(t, time.Now().Add(4*time.Second), s.Deadline())
	})
}
