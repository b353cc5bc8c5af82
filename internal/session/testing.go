package session

import (
	"log/slog"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/trust"
)

// Offline returns a client for tests, without servers and goroutines. Its session has just begun.
func Offline(timeout time.Duration) *Access {
	a := New()
	a.View.Log, a.stopped = slog.New(slog.DiscardHandler), true
	a.current = newSession(a.Setup, a.Client)
	a.current.Suspend(0, timeout)
	return a
}

// Suspend makes the session's last contact that old, as a suspension of the process would. It is
// for tests.
func (s *Session) Suspend(age, timeout time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trust = trust.Trust{}
	s.trust.Began(time.Now().Add(-age), timeout)
}

// PacketLimit returns a protocol.ConnectOption that limits packets to so many bytes, in each
// direction. Package protocol sets it. zk.Conn allocates megabytes otherwise, and clearing them
// takes most of a simulated client's time.
var PacketLimit func(bytes int) any
