package protocol

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

// A kernel is what the Sessions of all views of a client have in common. What is held in it are Gs.
type kernel[G comparable] struct {
	ensemble *conn.Ensemble
	chroot   string
	owner    owner[G]
	conn     *conn.Conn
	nonces   atomic.Uint32

	account account

	sharing sync.Mutex  // held while a value of Shared is looked up or made
	shared  map[any]any // the values of Shared: from sharedKey to weak.Pointer

	life context.Context // done when the session is over
	end  context.CancelCauseFunc
	wake chan struct{} // makes keep look at the session again

	mu        sync.Mutex // protects what follows; nothing blocks while it is held, and conn is not called
	trust     trust.Trust
	engaged   int // how many grants and calls need trust to be kept fresh
	grants    map[G]struct{}
	releasing int // grants whose nodes are being deleted for callers that wait
	err       error
	engagedAt time.Time // when engaged was last zero
	wakes     time.Time // when keep looks at the clocks next
}

// An owner is what a session asks its client for.
type owner[G comparable] struct {
	log     *slog.Logger
	do      conn.Do                      // see conn.Host
	changed func(conn.Change)            // likewise
	lose    func(err error, grants ...G) // ends what is held, each of which is then dismissed
}

func newKernel[G comparable](e *conn.Ensemble, chroot string, o owner[G]) *kernel[G] {
	s := &kernel[G]{
		ensemble: e, chroot: chroot, owner: o,
		wake:   make(chan struct{}, 1),
		grants: make(map[G]struct{}),
		shared: make(map[any]any),
	}
	s.nonces.Store(rand.Uint32())
	s.life, s.end = context.WithCancelCause(context.Background())
	s.conn = conn.New(s.life, e, host[G]{s})
	return s
}

// ID returns the session ID, or 0 before the first handshake.
func (s *kernel[G]) ID() int64 { return s.conn.ID() }

// Timeout returns the session timeout that was granted last.
func (s *kernel[G]) Timeout() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.trust.Timeout()
}

// Deadline returns until when the session is safe if nothing more is heard.
func (s *kernel[G]) Deadline() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.grants) > 0 {
		return s.trust.Deadline()
	}
	return s.trust.SilentAt()
}

// Conn returns the zk.Conn.
func (s *kernel[G]) Conn() *zk.Conn { return s.conn.ZK() }

// Path returns path with the chroot in front.
func (s *kernel[G]) Path(path string) string {
	if path == "/" && s.chroot != "" {
		return s.chroot
	}
	return s.chroot + path
}

// relative undoes Path. The root stands for all that is above the chroot.
func (s *kernel[G]) relative(node string) string {
	if len(node) <= len(s.chroot) {
		return "/"
	}
	return node[len(s.chroot):]
}

// Done returns a channel that is closed when the session is over.
func (s *kernel[G]) Done() <-chan struct{} { return s.life.Done() }

// Err returns why the session is over, or nil. It is computed from the clocks.
func (s *kernel[G]) Err() error {
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
func (s *kernel[G]) overdue(now time.Time) error {
	switch {
	case len(s.grants) > 0 && s.trust.Over(now):
		return fmt.Errorf("%w: session %v %w: %s", ErrLost, layout.SessionID(s.ID()), ErrUntrusted, s.trust.Lapse(now))
	case s.releasing > 0 && s.trust.Silent(now):
		return fmt.Errorf("%w: session %v %w: silent for %v", ErrLost, layout.SessionID(s.ID()), ErrUntrusted,
			s.trust.Heard(now).Round(time.Millisecond))
	}
	return nil
}

// lapsed reports whether the servers may have expired the session because they have not heard from it.
func (s *kernel[G]) lapsed() bool {
	if s.conn.Link() != nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.trust.Silent(time.Now())
}

// finish ends the session with err, once. All that it holds is lost, calls that wait return, and
// its connections are cut.
func (s *kernel[G]) finish(err error) {
	s.mu.Lock()
	if s.err != nil {
		s.mu.Unlock()
		return
	}
	s.err = err
	grants := slices.Collect(maps.Keys(s.grants))
	s.mu.Unlock()

	s.owner.lose(err, grants...)
	s.end(err)
	s.conn.End(err, errors.Is(err, ErrClosed))
}

// silent returns an error if a call that began at that time has waited for too long.
func (s *kernel[G]) silent(began time.Time) error {
	if time.Now().Before(s.silentFrom(began)) {
		return nil
	}
	s.mu.Lock()
	err := fmt.Errorf("%w, nothing for %v", errSilent, s.trust.Heard(time.Now()).Round(time.Millisecond))
	s.mu.Unlock()
	if failed := s.conn.LastFailure(); failed != nil {
		err = fmt.Errorf("%w: %w", err, failed)
	}
	return err
}

// silentFrom returns until when a call that began at that time waits for a server: until nothing was
// heard for the session timeout, and for half of it at least.
func (s *kernel[G]) silentFrom(began time.Time) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return trust.Later(s.trust.SilentAt(), began.Add(s.trust.Timeout()/2))
}

var errSilent = fmt.Errorf("no answer within the session timeout: %w", zk.ErrNoServer)

// engage keeps trust fresh until disengage is called.
func (s *kernel[G]) engage() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.engaged++
	if s.engaged == 1 {
		s.engagedAt = time.Now()
		due, _ := s.due(s.engagedAt, false)
		s.wakeBy(due)
	}
}

func (s *kernel[G]) disengage() {
	s.mu.Lock()
	s.engaged--
	s.mu.Unlock()
}

// admit adds g to the grants that the session holds. If trust has run out at this moment, it
// returns errStale: Confirm renews trust, and the caller tries again. The caller has called engage.
// If admit succeeds, dismiss makes up for that call, and otherwise the caller calls disengage.
func (s *kernel[G]) admit(g G) error {
	s.Err() // which ends a session that is over by the clocks
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.err != nil:
		return s.err
	case s.trust.Over(time.Now()):
		return errStale
	}

	s.grants[g] = struct{}{}
	s.wakeBy(s.trust.Deadline())
	return nil
}

var errStale = errors.New("session not confirmed")

// dismiss removes g from the grants that the session holds. If its node is being deleted, that counts
// until removed is called.
func (s *kernel[G]) dismiss(g G, releasing bool) {
	s.mu.Lock()
	if releasing {
		s.releasing++
		s.wakeBy(s.trust.SilentAt())
	}
	delete(s.grants, g)
	s.engaged--
	free := len(s.grants) == 0
	s.mu.Unlock()
	if free {
		s.conn.Admit()
	}
}

// removed notes that nobody waits any more for the deletion of the node of a grant.
func (s *kernel[G]) removed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.releasing--
}

// newOwner is a name for one contender or claim of this session.
func (s *kernel[G]) newOwner() Owner { return Owner{s.ID(), s.nonces.Add(1)} }

// confirmed reports whether something may be granted under s now.
func (s *kernel[G]) confirmed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err == nil && s.trust.Fresh(time.Now())
}

// over reports whether the session is known to be over.
func (s *kernel[G]) over() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err != nil
}

// holds returns how much is held.
func (s *kernel[G]) holds() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.grants)
}

// find returns something held of which is says yes. It must not block.
func (s *kernel[G]) find(is func(G) bool) (g G, found bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for g := range s.grants {
		if is(g) {
			return g, true
		}
	}
	return g, false
}

// EphemeralBytes returns how many bytes the account has.
func (s *kernel[G]) EphemeralBytes() int {
	s.account.mu.Lock()
	defer s.account.mu.Unlock()
	return s.account.used
}
