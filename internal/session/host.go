package session

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/conn"
	"github.com/zkrecipes/zkrecipes/internal/trust"
)

// A host is what a session is to its connections: see [conn.Host].
type host struct{ s *Session }

func (h host) Resume(dialled time.Time, timeout time.Duration) (hold bool, err error) {
	s := h.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return false, s.err
	}
	if err := s.overdue(time.Now()); err != nil {
		return false, err
	}
	s.trust.Began(dialled, timeout)
	return len(s.holders) > 0 && s.trust.Agreed(time.Now()) >= timeout/2, nil
}

func (h host) Answered(sent, at time.Time, by trust.Witness) {
	s := h.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.overdue(at) == nil {
		s.trust.Answered(sent, at, by)
	}
}

func (h host) Stake() conn.Stake {
	s := h.s
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.engaged > 0 && !s.trust.Silent(time.Now()): // after that, trust has run out
		return conn.StakeGrant
	case s.EphemeralBytes() > 0:
		return conn.StakePlace
	}
	return conn.StakeNothing
}

func (h host) Silent() bool {
	s := h.s
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.trust.Silent(time.Now())
}

func (h host) Holds() bool {
	s := h.s
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.holders) > 0
}

func (h host) Err() error { return h.s.Err() }

func (h host) Gone(why error) { h.s.finish(fmt.Errorf("%w: %w", ErrLost, why)) }

func (h host) Changed(c conn.Change) {
	if c == conn.Connected {
		h.s.poke()
	}
	h.s.client.changed(c)
}

func (h host) Deleted(path string) { h.s.account.gone(path) }

func (h host) Do(request func(*zk.Conn) error) error { return h.s.client.do(request) }

func (h host) Log(level slog.Level, message string, args ...any) {
	h.s.client.log.Log(context.Background(), level, message, args...)
}
