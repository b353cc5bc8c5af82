package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/conn"
	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/internal/trust"
)

// A Session is one session with the ensemble, and what is held in it. It is safe for concurrent use.
type Session struct {
	*Setup
	Conn   *conn.Conn
	client owner
	nonces atomic.Uint32

	account account
	shared  sharedValues

	Life context.Context // done when the session is over
	end  context.CancelCauseFunc
	wake chan struct{} // makes keep look at the session again

	mu        sync.Mutex // protects what follows; nothing blocks while it is held, and Conn is not called
	trust     trust.Trust
	engaged   int // how many grants and calls need trust to be kept fresh
	holders   map[Holder]struct{}
	releasing int // holders whose nodes are being deleted for callers that wait
	err       error
	engagedAt time.Time // when engaged was last zero
	wakes     time.Time // when keep looks at the clocks next
}

// An owner is what a session asks its client for.
type owner struct {
	do      conn.Do           // see conn.Host
	changed func(conn.Change) // likewise
	log     *slog.Logger
}

func newSession(setup *Setup, client owner) *Session {
	s := &Session{
		Setup: setup, client: client,
		wake:    make(chan struct{}, 1),
		holders: make(map[Holder]struct{}),
	}
	s.nonces.Store(rand.Uint32())
	s.Life, s.end = context.WithCancelCause(context.Background())
	s.Conn = conn.New(s.Life, setup.Ensemble, host{s})
	return s
}

// ID returns the session ID, or 0 before the first handshake.
func (s *Session) ID() int64 { return s.Conn.ID() }

// Timeout returns the session timeout that was granted last.
func (s *Session) Timeout() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.trust.Timeout()
}

// Deadline returns until when the session is safe if nothing more is heard.
func (s *Session) Deadline() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.holders) > 0 {
		return s.trust.Deadline()
	}
	return s.trust.SilentAt()
}

// Path returns path with the chroot in front.
func (s *Session) Path(path string) string {
	if path == "/" && s.Chroot != "" {
		return s.Chroot
	}
	return s.Chroot + path
}

// Relative undoes Path. The root stands for all that is above the chroot.
func (s *Session) Relative(node string) string {
	if len(node) <= len(s.Chroot) {
		return "/"
	}
	return node[len(s.Chroot):]
}

// Done returns a channel that is closed when the session is over.
func (s *Session) Done() <-chan struct{} { return s.Life.Done() }

// Err returns why the session is over, or nil. It is computed from the clocks.
func (s *Session) Err() error {
	s.mu.Lock()
	err := s.err
	if err == nil {
		if err = s.overdue(time.Now()); err != nil {
			defer s.finish(err)
		}
	}
	s.mu.Unlock()
	return err
}

// overdue returns an error if the session is over by the clocks: while something is held, or given
// back, whose caller must not wait for ever. A session that has nothing at stake lives as long as the
// servers say, because while there is no quorum none expires. The caller holds mu.
func (s *Session) overdue(now time.Time) error {
	switch {
	case len(s.holders) > 0 && s.trust.Over(now):
		return fmt.Errorf("%w: session %v %w: %s", ErrLost, layout.SessionID(s.ID()), ErrUntrusted, s.trust.Lapse(now))
	case s.releasing > 0 && s.trust.Silent(now):
		return fmt.Errorf("%w: session %v %w: silent for %v", ErrLost, layout.SessionID(s.ID()), ErrUntrusted,
			s.trust.Heard(now).Round(time.Millisecond))
	}
	return nil
}

// lapsed reports whether the servers may have expired the session because they have not heard from it.
func (s *Session) lapsed() bool {
	if s.Conn.Link() != nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.trust.Silent(time.Now())
}

// finish ends the session with err, once. All that it holds is lost, calls that wait return, and
// its connections are cut.
func (s *Session) finish(err error) {
	s.mu.Lock()
	if s.err != nil {
		s.mu.Unlock()
		return
	}
	s.err = err
	holders := slices.Collect(maps.Keys(s.holders))
	s.mu.Unlock()

	s.Lose(err, holders...)
	s.end(err)
	s.Conn.End(err, errors.Is(err, ErrClosed))
}

// Silent returns an error if a call that began at that time has waited for too long.
func (s *Session) Silent(began time.Time) error {
	if time.Now().Before(s.silentFrom(began)) {
		return nil
	}
	s.mu.Lock()
	err := fmt.Errorf("%w, nothing for %v", errSilent, s.trust.Heard(time.Now()).Round(time.Millisecond))
	s.mu.Unlock()
	if failed := s.Conn.LastFailure(); failed != nil {
		err = fmt.Errorf("%w: %w", err, failed)
	}
	return err
}

// silentFrom returns until when a call that began at that time waits for a server: until nothing was
// heard for the session timeout, and for half of it at least.
func (s *Session) silentFrom(began time.Time) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return trust.Later(s.trust.SilentAt(), began.Add(s.trust.Timeout()/2))
}

var errSilent = fmt.Errorf("no answer within the session timeout: %w", zk.ErrNoServer)

// Engage keeps trust fresh until Disengage is called.
func (s *Session) Engage() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.engaged++
	if s.engaged == 1 {
		s.engagedAt = time.Now()
		due, _ := s.due(s.engagedAt, false)
		s.wakeBy(due)
	}
}

// Disengage makes up for Engage.
func (s *Session) Disengage() {
	s.mu.Lock()
	s.engaged--
	s.mu.Unlock()
}

// Admit adds h to what the session holds. If trust has run out at this moment, it returns
// [ErrStale]: Confirm renews trust, and the caller tries again. The caller has called Engage. If
// Admit succeeds, Dismiss makes up for that call, and otherwise the caller calls Disengage.
func (s *Session) Admit(h Holder) error {
	s.Err() // which ends a session that is over by the clocks
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.err != nil:
		return s.err
	case s.trust.Over(time.Now()):
		return ErrStale
	}

	s.holders[h] = struct{}{}
	s.wakeBy(s.trust.Deadline())
	return nil
}

// ErrStale is the error of a session that has to be confirmed first.
var ErrStale = errors.New("session not confirmed")

// Dismiss removes h from what the session holds. If its node is being deleted, that counts until
// Removed is called.
func (s *Session) Dismiss(h Holder, releasing bool) {
	s.mu.Lock()
	if releasing {
		s.releasing++
		s.wakeBy(s.trust.SilentAt())
	}
	delete(s.holders, h)
	s.engaged--
	s.mu.Unlock()
	s.Conn.Admit()
}

// Removed notes that nobody waits any more for the deletion of the node of a grant.
func (s *Session) Removed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.releasing--
}

// NewOwner is a name for one contender or claim of this session.
func (s *Session) NewOwner() layout.Owner {
	return layout.Owner{Session: s.ID(), Nonce: s.nonces.Add(1)}
}

// confirmed reports whether something may be granted under s now.
func (s *Session) confirmed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err == nil && s.trust.Fresh(time.Now())
}

// over reports whether the session is known to be over.
func (s *Session) over() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err != nil
}

// EphemeralBytes returns how many bytes the account has.
func (s *Session) EphemeralBytes() int {
	s.account.mu.Lock()
	defer s.account.mu.Unlock()
	return s.account.used
}

// Found notes in the account the number of a node that was created, whose absolute path before that is
// prefix.
func (s *Session) Found(prefix, path string) { s.account.found(prefix, path) }
