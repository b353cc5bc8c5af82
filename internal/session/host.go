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

// A host is a session as its connections see it: see [conn.Host].
type host struct{ *Session }

func (s host) Resume(dialled time.Time, timeout time.Duration) (hold bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return false, s.err
	}

	// No goroutine may have looked at the clocks since trust ran out.
	if err := s.overdue(time.Now()); err != nil {
		return false, err
	}

	s.trust.Began(dialled, timeout)
	return len(s.holders) > 0 && s.trust.Agreed(time.Now()) >= timeout/2, nil
}

func (s host) Answered(sent, at time.Time, by trust.Witness) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// An answer that comes too late must not revive locks whose loss a caller may have seen.
	if s.overdue(at) == nil {
		s.trust.Answered(sent, at, by)
	}
}

func (s host) Stake() conn.Stake {
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

func (s host) Silent() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.trust.Silent(time.Now())
}

func (s host) Holds() bool { return s.holds() > 0 }

func (s host) Gone(why error) { s.finish(fmt.Errorf("%w: %w", ErrLost, why)) }

func (s host) Changed(c conn.Change) {
	if c == conn.Connected {
		s.poke()
	}
	s.client.noteChange(s.Session, c)
}

func (s host) Deleted(path string) { s.account.gone(path) }

func (s host) Do(request func(*zk.Conn) error) error { return s.client.do(s.Session, request) }

func (s host) Log(level slog.Level, message string, args ...any) {
	s.client.log().Log(context.Background(), level, message, args...)
}
