package protocol

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/zkwire"
)

// held returns a session with a timeout of twelve seconds that has just begun, and something that
// it holds.
func held(t *testing.T) (*session, *Grant) {
	c := &Client{sessions: &sessions{stopped: true}, log: slog.New(slog.DiscardHandler), observer: noObserver{}}
	s := newSession(c)
	s.id, s.trust.timeout = 1, 12*time.Second
	s.trust.began(time.Now())
	s.engage()
	g, err := newGrant(context.Background(), NewRecipe(c, "test", "/line"), s.base, "/line/node", 1, false, nil)
	require.NoError(t, err)
	return s, g
}

// TestAnswerThatComesTooLateRenewsNothing delivers an answer before any goroutine has looked at the
// clocks.
func TestAnswerThatComesTooLateRenewsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, g := held(t)
		w := &connection{session: s, dialled: time.Now()}
		time.Sleep(7 * time.Second)
		asked := time.Now()
		time.Sleep(time.Second)
		s.answered(w, sentRequest{xid: 1, op: zkwire.OpDelete, at: asked}, zkwire.CodeNoNode)
		s.answered(w, sentRequest{xid: 2, op: zkwire.OpSync, at: asked}, zkwire.CodeOK)
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
		_, err := s.connected(&connection{session: s, dialled: time.Now()}, zkwire.ConnectResponse{Timeout: 12 * time.Second, SessionID: 1})
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
		w := &connection{session: s, dialled: time.Now()}
		time.Sleep(3 * time.Second)
		_, err := s.connected(w, zkwire.ConnectResponse{Timeout: 12 * time.Second, SessionID: 1})
		require.NoError(t, err)
		require.Equal(t, w.dialled.Add(8*time.Second), s.Deadline())
	})
}

// TestAnswerToACredentialIsNoSignOfLife: servers do not count credentials either.
func TestAnswerToACredentialIsNoSignOfLife(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, _ := held(t)
		w := &connection{session: s, dialled: time.Now()}
		before := s.trust
		s.failures = 3
		time.Sleep(5 * time.Second)
		s.answered(w, sentRequest{xid: zkwire.XidAuth, op: zkwire.OpAuth, at: time.Now()}, zkwire.CodeOK)
		require.Equal(t, before, s.trust)
		require.Equal(t, 3, s.failures)
	})
}

// TestAttemptsToConnectCountUntilAConnectionIsOfUse checks when the next attempts need not be
// paced.
func TestAttemptsToConnectCountUntilAConnectionIsOfUse(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		op    zkwire.Op
		after time.Duration
		want  int
	}{
		{zkwire.OpGetData, time.Second, 3},     // it may hang up now
		{zkwire.OpGetData, 2 * time.Second, 0}, // it has lasted for a sixth of the timeout
		{zkwire.OpSync, time.Second, 0},        // the leader has answered
	} {
		synctest.Test(t, func(t *testing.T) {
			s, _ := held(t)
			w := &connection{session: s, dialled: time.Now()}
			s.failures = 3
			time.Sleep(c.after)
			s.answered(w, sentRequest{xid: 1, op: c.op, at: time.Now()}, zkwire.CodeOK)
			require.Equal(t, c.want, s.failures)
		})
	}
}

// TestTrustFollowsTheTimeoutOfAResumption resumes at a server that grants half of the first
// timeout.
func TestTrustFollowsTheTimeoutOfAResumption(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, _ := held(t)
		w := &connection{session: s, dialled: time.Now()}
		_, err := s.connected(w, zkwire.ConnectResponse{Timeout: 6 * time.Second, SessionID: 1})
		require.NoError(t, err)
		require.Equal(t, w.dialled.Add(4*time.Second), s.Deadline())
	})
}
