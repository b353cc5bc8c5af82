package session

import (
	"log/slog"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/trust"
)

// Offline returns a client for tests that has no servers and starts no goroutines. Its session has
// just begun.
func Offline(timeout time.Duration) *Access {
	a := New()
	a.View.Log, a.stopped = slog.New(slog.DiscardHandler), true
	a.current = a.newSession().Session
	a.current.Suspend(0, timeout)
	return a
}

// Suspend has the session's last contact be as long ago, as after a suspension of the process. It is
// for tests.
func (s *Session) Suspend(age, timeout time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trust = trust.Trust{}
	s.trust.Began(time.Now().Add(-age), timeout)
}
