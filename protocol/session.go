package protocol

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"
)

// A Session is one session with the ensemble, over one [zk.Conn] that ends with it. An operation
// that was begun in a session never runs in another one.
//
// A session ends for good
//
//   - when the server says that it has expired,
//   - when nothing was heard from the server for its whole timeout,
//   - when something is held and trust has run out (see "Trust" in the package documentation),
//   - when the client is closed.
//
// A Session is bound to the [Client] that returned it: it uses that client's ACL, back-off, logger
// and observer. Clients that were made by [Client.With] have Sessions with the same ID. A Session
// is safe for concurrent use.
//
// Get, Children, Exists, Create, Set, Delete, Multi and Sync block until the server has answered.
// If the connection breaks they try again, paced by the back-off. They take paths without the
// chroot. They return the server's own error, such as [zk.ErrNoAuth], ctx's if that ends first, one
// that wraps [ErrLost] or [ErrClosed] if the session ends, or [ErrTooLarge]. [Do] and [DoOnce] are
// for other requests.
type Session struct {
	*session
	client *Client
	recipe *Recipe // which the events of retries name, or nil
}

// A session is what the Sessions of all views of a client have in common.
type session struct {
	client *Client  // the one that Connect returned
	base   *Session // bound to that client
	conn   *zk.Conn
	events <-chan zk.Event // closed when conn's goroutines have ended; lossy, so used for nothing else
	nonces atomic.Uint32

	watches   watchTable
	creations creations

	sharing sync.Mutex  // held while a value of Shared is looked up or made
	shared  map[any]any // the values of Shared: from sharedKey to weak.Pointer

	life  *detached // done when the session is over
	end   context.CancelCauseFunc
	wake  chan struct{} // makes keep look at the session again
	began chan struct{} // closed by the first handshake

	stubbing sync.Once
	stubbed  chan struct{} // closed when zk.Conn was first connected to a stub

	mu          sync.Mutex // protects what follows; nothing blocks while it is held
	id          int64
	password    secret
	trust       trust
	newest      int64                 // the newest transaction that an answer or event has told of
	settled     int64                 // the transaction up to which no event of a watch is missing
	watched     map[string]watchKinds // the watches that zk.Conn has set, by path
	wire        *connection           // nil while there is no connection
	handshaking *connection           // a connection whose handshake is under way
	ready       bool                  // requests may be made
	gate        chan struct{}         // closed while ready
	resumed     chan struct{}         // closed, and made anew, when a handshake is answered
	engaged     int                   // how many grants and calls need trust to be kept fresh
	grants      map[*Grant]struct{}
	err         error
	expired     bool         // or closed: the server has said that the session is gone
	failures    int          // attempts to connect since the last useful connection
	lastFail    error        // the error of the last of these attempts
	accepted    [2]time.Time // when the last two connections that the servers have accepted were dialled
	limits      limits

	warned    time.Time // when refusals were last logged
	engagedAt time.Time // when engaged was last zero
	wakes     time.Time // when keep looks at the clocks next
}

func newSession(c *Client) *session {
	s := &session{
		client:  c,
		wake:    make(chan struct{}, 1),
		began:   make(chan struct{}),
		stubbed: make(chan struct{}),
		gate:    make(chan struct{}),
		resumed: make(chan struct{}),
		grants:  make(map[*Grant]struct{}),
		shared:  make(map[any]any),
	}
	s.base = &Session{s, c, nil}
	s.nonces.Store(rand.Uint32())
	s.watches.session = s
	life, end := context.WithCancelCause(context.Background())
	s.life, s.end = &detached{Context: life}, end
	return s
}

// ID returns the session ID that the server has given out.
func (s *session) ID() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.id
}

// Timeout returns the session timeout that the server has granted. It may differ from the one that
// was asked for, and may change when the session moves to another server.
func (s *session) Timeout() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.trust.timeout
}

// Deadline returns when the session will be over if nothing more is heard from the ensemble. While
// something is held, that is when trust runs out. Otherwise it is when the server may expire the
// session. Answers move it on.
func (s *session) Deadline() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.grants) > 0 {
		return s.trust.deadline()
	}
	return s.trust.contact.Add(s.trust.timeout)
}

// Conn returns the session's zk.Conn, for reads and Multi calls of your own. Do not close it.
//
// Its paths are absolute: use [Session.Path] to put the chroot in front. Its calls block until they
// are answered or the connection breaks, whatever your ctx says. While there is no connection, they
// wait for the session's next one. [Do] returns when ctx ends. Keep what you send below [MaxData]:
// one size of a Multi just above a megabyte makes zk.Conn panic.
//
// Watches set through it survive any number of broken connections, and end with the session. Each
// fires once for what has happened since it was set, early or late. It may also fire for a change
// that its owner knows already. As with every ZooKeeper client, a node that was created and deleted
// while there was no connection has never existed for a watch that waits for it.
func (s *session) Conn() *zk.Conn { return s.conn }

// Path returns path with the chroot of the connect string in front.
func (s *session) Path(path string) string {
	if path == "/" && s.client.chroot != "" {
		return s.client.chroot
	}
	return s.client.chroot + path
}

// relative undoes Path. The root stands for all that is above the chroot.
func (s *session) relative(node string) string {
	if len(node) <= len(s.client.chroot) {
		return "/"
	}
	return node[len(s.client.chroot):]
}

// Done returns a channel that is closed when the session is over. [Session.Err] then returns why.
// It may do so a moment earlier.
func (s *session) Done() <-chan struct{} { return s.life.Done() }

// Err returns nil while the session can be trusted. After that it returns an error that wraps
// [ErrLost], and also [ErrClosed] if the client was closed. It is computed from the clocks at the
// time of the call. So it is right in a process that has just been stopped for a minute, before
// anything else there has noticed.
func (s *session) Err() error {
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

// overdue returns an error if the session is over by the clocks. The caller holds mu.
func (s *session) overdue(now time.Time) error {
	switch {
	case s.id == 0:
		return nil
	case len(s.grants) > 0 && s.trust.over(now):
		return fmt.Errorf("%w: session %v %w: %s", ErrLost, hexID(s.id), ErrUntrusted, s.trust.lapse(now))
	case s.trust.silent(now):
		return fmt.Errorf("%w: session %v was silent for %v", ErrLost, hexID(s.id),
			elapsed(s.trust.contact, now).Round(time.Millisecond))
	}
	return nil
}

// finish ends the session with err, once. All that it holds is lost, calls that wait return, and
// its connections are cut.
func (s *session) finish(err error) {
	s.mu.Lock()
	if s.err != nil {
		s.mu.Unlock()
		return
	}
	s.err = err
	grants := maps.Clone(s.grants)
	cut := []*connection{s.handshaking, s.wire}
	if errors.Is(err, ErrClosed) {
		cut = cut[:1] // the current connection is needed to close the session
	}
	s.mu.Unlock()

	for g := range grants {
		g.lose(err)
	}
	s.end(err)
	for _, w := range cut {
		if w != nil {
			w.cut(err)
		}
	}
}

// await blocks until requests may be made. It returns an error if ctx ends or the session is over
// first.
func (s *session) await(ctx context.Context) error {
	for {
		if ctx.Err() != nil {
			return s.ended(ctx)
		}
		if err := s.Err(); err != nil {
			return err
		}

		s.mu.Lock()
		gate, ready := s.gate, s.ready
		s.mu.Unlock()
		if ready {
			return nil
		}
		select {
		case <-gate:
		case <-s.Done():
		case <-ctx.Done():
			return s.ended(ctx)
		}
	}
}

// ended returns why a call in s could not go on, after ctx or s has ended. If there is no
// connection, it includes the error of the last attempt to connect.
func (s *session) ended(ctx context.Context) error {
	if ctx.Err() == nil || detachedFrom(ctx) != nil && s.life.Err() != nil {
		return context.Cause(s.life)
	}
	err := contextError(ctx) // before the lock: the context of a grant asks the session
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lastFail != nil {
		return fmt.Errorf("%w: %w", err, s.lastFail)
	}
	return err
}

// engage keeps trust fresh until disengage is called.
func (s *session) engage() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.engaged++
	if s.engaged == 1 {
		s.engagedAt = time.Now()
		due, _ := s.due(s.engagedAt, false)
		s.wakeBy(due)
	}
}

func (s *session) disengage() {
	s.mu.Lock()
	s.engaged--
	s.mu.Unlock()
}

// admit adds g to the grants that the session holds. If trust has run out at this moment, it
// returns errStale: Confirm renews trust, and the caller tries again. The caller has called engage.
// If admit succeeds, dismiss makes up for that call, and otherwise the caller calls disengage.
func (s *session) admit(g *Grant) error {
	s.Err() // which ends a session that is over by the clocks
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.err != nil:
		return s.err
	case s.trust.over(time.Now()):
		return errStale
	}

	s.grants[g] = struct{}{}
	s.wakeBy(s.trust.deadline())
	return nil
}

var errStale = errors.New("session not confirmed")

// dismiss removes g from the grants that the session holds.
func (s *session) dismiss(g *Grant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.grants, g)
	s.engaged--
	if len(s.grants) == 0 && s.wire != nil {
		s.admitRequests()
	}
}

// dispose closes a session that is over at the servers, unless they have ended it, and joins its
// goroutines. It tries to close the session until ctx ends, and then returns an error.
func (s *session) dispose(ctx context.Context) error {
	s.mu.Lock()
	w, opened := s.wire, s.id != 0
	s.mu.Unlock()
	if w == nil {
		<-s.stubbed
	}

	s.conn.Close() // takes a second if there is a connection over which no answer comes
	if w != nil {
		w.cut(net.ErrClosed)
	}
	for range s.events {
		// Only the end of the channel matters.
	}

	s.mu.Lock()
	gone, password, timeout := s.expired, s.password, s.trust.timeout
	s.mu.Unlock()
	if gone || !opened {
		return nil
	}
	return s.client.closeOrphan(ctx, s.ID(), password(), timeout)
}

// newOwner is a name for one contender or claim of this session.
func (s *session) newOwner() Owner { return Owner{s.ID(), s.nonces.Add(1)} }

// A logger passes the messages of zk.Conn to the client's logger.
type logger struct{ s *session }

func (l logger) Printf(format string, args ...any) {
	format = strings.Replace(format, "authentication failed", "handshake failed", 1) // which has no credentials in it
	l.s.client.log.Debug("zk: "+strings.TrimSpace(fmt.Sprintf(format, args...)), "session", hexID(l.s.ID()))
}
