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

// A Session is one session with the ensemble, and its locks. It is safe for concurrent use.
type Session struct {
	*Setup
	Conn   *conn.Conn
	client owner
	nonces atomic.Uint32

	account account
	shared  sharedValues

	Life   context.Context // done when the session has ended
	Nobody *Work           // the work without a caller
	end    context.CancelCauseFunc
	wake   chan struct{} // makes keep look at the session again
	next   chan func()   // to a goroutine of SpawnWork that has nothing to do

	mu        sync.Mutex // protects the fields below; nothing blocks while it is held, and Conn isn't called
	trust     trust.Trust
	engaged   int // how many grants and calls need fresh trust
	holders   map[Holder]struct{}
	releasing int // holders whose nodes are being deleted for callers that wait
	err       error
	engagedAt time.Time // when engaged was last zero
	wakes     time.Time // when keep will look at the clocks next
}

// An owner is the client of a session.
type owner interface {
	// do repeats a request until its outcome is definite or the session ends.
	do(s *Session, request func(*zk.Conn) error) error

	// noteChange notes a change of the session's connection. recount looks for ephemeral nodes that
	// are gone. Neither blocks.
	noteChange(s *Session, change conn.Change)
	recount(s *Session)

	log() *slog.Logger
}

func newSession(setup *Setup, client owner) *Session {
	s := &Session{
		Setup: setup, client: client,
		wake:    make(chan struct{}, 1),
		next:    make(chan func()),
		holders: make(map[Holder]struct{}),
	}

	s.nonces.Store(rand.Uint32())
	s.Life, s.end = context.WithCancelCause(context.Background())
	s.Nobody = &Work{Context: s.Life}
	s.Conn = conn.New(s.Life, setup.Ensemble, host{s})
	return s
}

// ID returns the session ID, or 0 before the first handshake.
func (s *Session) ID() int64 { return s.Conn.ID() }

// String returns the session ID as servers write it.
func (s *Session) String() string { return fmt.Sprintf("session %#x", uint64(s.ID())) }

// Timeout returns the session timeout granted last.
func (s *Session) Timeout() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.trust.Timeout()
}

// Deadline returns until when the session is safe if no more answers come.
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

// Relative undoes Path. For the chroot and the nodes above it, it returns "/".
func (s *Session) Relative(node string) string {
	if len(node) <= len(s.Chroot) {
		return "/"
	}
	return node[len(s.Chroot):]
}

// Done returns a channel that is closed when the session has ended.
func (s *Session) Done() <-chan struct{} { return s.Life.Done() }

// Err returns why the session has ended, or nil. It is computed from the clocks.
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

// overdue returns an error if the clocks say that the session has ended. They only do so while the
// session holds a lock, or releases one for a caller (who must not wait for ever). A session with
// nothing at stake lives as long as the servers say: without a quorum, no session expires. The
// caller holds mu.
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

// lapsed reports whether the servers can have expired the session because of its silence.
func (s *Session) lapsed() bool {
	return s.Conn.Link() == nil && host{s}.Silent()
}

// finish ends the session with err, once: it loses its locks, waiting calls return, and its
// connections are cut.
func (s *Session) finish(err error) {
	s.mu.Lock()
	if s.err != nil {
		s.mu.Unlock()
		return
	}

	s.err = err
	// From here on Admit refuses new holders.
	holders := slices.Collect(maps.Keys(s.holders))
	s.mu.Unlock()

	// Holders come first because their locks can be granted to others at any moment.
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

// silentFrom returns until when a call that began at that time waits for a server: until there was
// no answer for the session timeout, and for at least half of it.
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
	// Until now keep did not look at the time of the next proof.
	if s.engaged == 1 {
		s.engagedAt = time.Now()
		due, _ := s.due(s.engagedAt, false)
		s.wakeBy(due)
	}
}

// Disengage undoes one call of Engage.
func (s *Session) Disengage() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.engaged--
}

// Admit adds a holder. If trust has run out, it returns [ErrStale]: then Confirm renews trust, and
// the caller tries again. The caller has called Engage. If Admit succeeds, Dismiss undoes that call
// too. Otherwise the caller calls Disengage.
func (s *Session) Admit(h Holder) error {
	s.Err() // ends a session that has ended by the clocks
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

// ErrStale means that the session must be confirmed first.
var ErrStale = errors.New("session not confirmed")

// Dismiss removes a holder. If releasing is true, its node is being deleted, and the caller calls
// Removed after that.
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

// Removed notes that no caller waits any more for the deletion of a holder's node.
func (s *Session) Removed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.releasing--
}

// NewOwner returns a name for one contender or claim of this session.
func (s *Session) NewOwner() layout.Owner {
	return layout.Owner{Session: s.ID(), Nonce: s.nonces.Add(1)}
}

// confirmed reports whether the session can be granted a lock now.
func (s *Session) confirmed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err == nil && s.trust.Fresh(time.Now())
}

// over reports whether the session is known to have ended. It does not look at the clocks.
func (s *Session) over() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err != nil
}

// EphemeralBytes returns how many bytes are in the account.
func (s *Session) EphemeralBytes() int {
	s.account.mu.Lock()
	defer s.account.mu.Unlock()
	return s.account.used
}

// Found notes the number of a created node, whose absolute path without the number is prefix. Until
// then, the account takes any node with this prefix that goes for the created node.
func (s *Session) Found(prefix, path string) { s.account.found(prefix, path) }

// Gone notes that the node at an absolute path is gone, or is another session's by now.
func (s *Session) Gone(path string) { s.account.gone(path) }
