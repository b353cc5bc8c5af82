package protocol

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/zkwire"
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

// beginHandshake notes a connection whose handshake is about to begin. It returns the zxid that the
// handshake has to claim.
func (s *session) beginHandshake(w *connection) (zxid int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.handshaking = w
	}
	return s.newest, s.err
}

// seen notes the zxid of an answer or an event. It feeds two numbers that must not be confused.
//
// newest goes into the next connect request. A server that does not know this transaction yet
// refuses the session. If newest were smaller than a zxid that was seen, the session could go back
// in time.
//
// settled goes into the next request to set watches again. Servers report what has happened after
// it. It must not exceed the transaction of an event that was not delivered. Events come in order
// with the answers, except for watches that are not set on this connection yet. Until they are set,
// settled does not move. If settled is too small, a watch fires for a change that its owner knows.
func (s *session) seen(zxid int64, settles bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.newest = max(s.newest, zxid)
	if settles {
		s.settled = max(s.settled, zxid)
	}
}

// connected takes a connection into use whose handshake was answered with h, or returns an error,
// with which the connection ends. It returns the packets that set the session's watches again over
// it.
func (s *session) connected(w *connection, h zkwire.ConnectResponse) (rewatch [][]byte, err error) {
	s.mu.Lock()
	overdue := s.overdue(time.Now())
	switch {
	case s.err != nil:
		err = s.err
	case overdue != nil: // what callers of Err have seen lost must not come back for others
		err = overdue
	case s.id == 0 && h.SessionID != 0:
		s.id, s.trust.timeout = h.SessionID, h.Timeout
		close(s.began)
	case h.SessionID != s.id || h.SessionID == 0:
		// For an expired session most servers answer with number 0, and some with a new session.
		// zk.Conn must see neither: it would go on in a new session.
		err = fmt.Errorf("%w: session %v expired", ErrLost, hexID(s.id))
		if s.id == 0 {
			err = errors.New("the server refused to open a session")
		}
		s.expired = s.id != 0
	}
	if err != nil {
		over := s.expired || overdue != nil
		s.mu.Unlock()
		if over {
			s.finish(err)
		}
		return nil, err
	}

	s.password = secretOf(h.Password)
	s.trust.timeout = h.Timeout
	s.trust.began(w.dialled)
	s.accepted = [2]time.Time{s.accepted[1], w.dialled}
	s.wire, s.handshaking = w, nil

	// Confirming what is held comes first. A long request that is repeated could delay the quorum's
	// answer for too long.
	if len(s.grants) == 0 || elapsed(s.trust.agreed, time.Now()) < h.Timeout/2 {
		s.admitRequests()
	}

	close(s.resumed)
	s.resumed = make(chan struct{})
	rewatch = s.rewatch(s.settled)
	s.mu.Unlock()

	s.client.review(s)
	s.poke()
	if h.Timeout != s.client.timeout {
		s.client.spawn(func() { s.client.tellGranted(h.Timeout) })
	}
	return rewatch, nil
}

// disconnected notes that a connection, or an attempt to make one, has ended. w is nil if there
// never was a connection.
func (s *session) disconnected(w *connection, why error) {
	s.mu.Lock()
	current := w != nil && s.wire == w
	if current {
		s.wire = nil
		if s.ready {
			s.ready, s.gate = false, make(chan struct{})
		}
	}
	if s.handshaking == w {
		s.handshaking = nil
	}
	if s.wire == nil {
		s.failures++
		s.lastFail = why
	}
	if !current {
		s.client.attempts.Add(1)
	}
	s.mu.Unlock()

	if current {
		s.client.review(s)
	}
}

// admitRequests lets calls go on that wait for a connection. The caller holds mu.
func (s *session) admitRequests() {
	if !s.ready {
		s.ready = true
		close(s.gate)
	}
}

// ceased notes that a connection has ended while these requests were unanswered.
func (s *session) ceased(sent []sentRequest, why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limits.ended(sent, byOtherSide(why))
}

// answered notes an answer to r that has come over w.
func (s *session) answered(w *connection, r sentRequest, code zkwire.Code) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expired = s.expired || r.op == zkwire.OpCloseSession && code == zkwire.CodeOK
	if r.op == zkwire.OpAuth { // which servers do not count as a sign of life
		return
	}

	now := time.Now()
	by := confirmationOf(r.op, code)
	if by == byQuorum && s.wire == w {
		s.admitRequests()
	}
	if s.overdue(now) == nil {
		s.trust.answered(r.at, now, by)
	}
	s.limits.took(r, code)

	// A server may accept the session, answer a request and hang up, again and again. So one answer
	// does not end the pauses between attempts to connect.
	if by != byServer || now.Sub(w.dialled) >= share(s.trust.timeout, silenceShare) {
		s.failures, s.lastFail = 0, nil
	}
}

// warn logs that the server refuses requests, if this error code says so, at most once a minute.
// The caller does not hold mu: spawn takes the client's lock, which comes before it.
func (s *session) warn(code zkwire.Code) {
	if !slices.Contains(refusals, code) {
		return
	}
	s.mu.Lock()
	due := time.Since(s.warned) >= time.Minute
	if due {
		s.warned = time.Now()
	}
	s.mu.Unlock()
	if due {
		s.client.spawn(func() { // the caller must not wait for a logger
			s.client.log.Warn("server refuses requests, which are tried again", "session", hexID(s.ID()), "error", code.String())
		})
	}
}

// refusals are the codes with which a server refuses requests that may succeed later.
var refusals = []zkwire.Code{zkwire.CodeConnectionLoss, zkwire.CodeSessionMoved, zkwire.CodeReadOnly, zkwire.CodeThrottled}

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

// connection returns the current connection, or nil if there is none.
func (s *session) connection() *connection {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.wire
}

// resumption returns a channel that is closed when the session gets its next connection. Events may
// be missed from now until then.
func (s *session) resumption() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.resumed
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
		s.wakeBy(s.engagedAt.Add(share(s.trust.timeout, trouble*syncShare)))
	}
}

// wakeBy makes keep look at the clocks at that time, at the latest. The caller holds mu.
func (s *session) wakeBy(at time.Time) {
	if s.wakes.After(at) {
		s.poke()
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

// poke makes keep look at the session again.
func (s *session) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// keep watches the clocks until the session is over. While something is held, or a call
// has engaged the session, it makes requests that renew trust unless other requests do so.
func (s *session) keep() {
	timer := time.NewTimer(0)
	defer timer.Stop()

	var pending proofs     // not answered yet
	var sent time.Time     // when the last one was
	var slow time.Duration // how long an answer may take, if that is longer than usual
	for {
		select {
		case <-s.Done():
			return
		case answered := <-pending.oldest():
			// A sync may be fast where a write is slow.
			if took := time.Since(pending[0].at); answered && (pending[0].write || 2*took > slow) {
				slow = 2 * took
			}
			pending = pending[1:]
		case <-s.wake:
		case <-timer.C:
		}
		if s.Err() != nil {
			return
		}

		now := time.Now()
		s.mu.Lock()
		timeout, w := s.trust.timeout, s.wire
		engaged, holds := s.engaged > 0, len(s.grants) > 0
		end := s.trust.contact.Add(timeout)
		if holds {
			end = s.trust.deadline()
		}
		renewable := s.trust.renewable()
		if len(pending) > 0 && pending[0].over != w { // they have ended with their connection
			pending, sent = nil, time.Time{}
		}
		due, write := s.trust.due(now, pending.write())

		// A contender that has just come makes requests itself. An answer that is late, or renews
		// nothing, must not make keep spin.
		soon := share(timeout, trouble*syncShare)
		due = later(due, s.engagedAt.Add(soon))
		if sent.After(s.trust.confirmed) {
			due = later(due, sent.Add(soon))
		}
		s.wakes = now.Add(timeout) // engage wakes keep earlier
		s.mu.Unlock()

		if w != nil && engaged && !now.Before(due) {
			// Earlier ones may be under way. So reports of contacts are as close together as usual.
			pending, sent = append(pending, s.prove(w, now, write)), now
			due = now.Add(soon)
		}

		next := end
		if w != nil && engaged {
			next = earlier(next, due)
		}

		// A silent server has to be left while there is time for another one. If the server before
		// was left for the same reason, or answers have been slow, the quorum is slow. Leaving
		// would then only begin the wait anew.
		usual := share(timeout, silenceShare)
		if len(pending) > 0 {
			limit := later(pending[0].at, w.progressed()).Add(max(usual, slow))
			if now.Before(limit) {
				next = earlier(next, limit)
			} else {
				slow = min(2*max(usual, slow), timeout)
				w.cut(fmt.Errorf("no answer from the leader for %v", now.Sub(pending[0].at).Round(time.Millisecond)))
			}
		}

		// A resumption may renew trust that is about to run out, as the leader takes part in it.
		if w != nil && holds && renewable {
			last := later(end.Add(-share(timeout, lastShare)), w.dialled.Add(usual))
			if now.Before(last) {
				next = earlier(next, last)
			} else {
				w.cut(errors.New("trust is about to run out"))
			}
		}

		next = later(next, now.Add(time.Millisecond))
		s.mu.Lock()
		s.wakes = next
		s.mu.Unlock()
		timer.Reset(next.Sub(now))
	}
}

// replacesPing reports whether no ping is needed over a connection, on which a request was last
// sent at this moment and the oldest one without an answer, if any, at that. While something is
// held, keep sends requests more often than zk.Conn sends pings.
func (s *session) replacesPing(last time.Time, unanswered []sentRequest) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	late := len(unanswered) > 0 && time.Since(unanswered[0].at) > share(s.trust.timeout, promptShare)
	return len(s.grants) > 0 && !late && time.Since(last) < share(s.trust.timeout, silenceShare)
}

// A proof is a request under way that renews trust.
type proof struct {
	over     *connection
	at       time.Time
	write    bool
	answered chan bool // receives whether there was an answer
}

// proofs are oldest first. They are answered in that order.
type proofs []proof

// oldest returns a channel that receives whether the oldest proof was answered. It is nil if there
// is none.
func (ps proofs) oldest() <-chan bool {
	if len(ps) == 0 {
		return nil
	}
	return ps[0].answered
}

// write reports whether one of the proofs is a write.
func (ps proofs) write() bool {
	return slices.ContainsFunc(ps, func(p proof) bool { return p.write })
}

// prove sends a sync or a write over w, in the background.
func (s *session) prove(w *connection, now time.Time, write bool) proof {
	p := proof{w, now, write, make(chan bool, 1)}
	s.client.spawn(func() {
		// The connection notes that there is an answer. What the answer says does not matter.
		var err error
		if write {
			err = s.writeNothing(s.conn)
		} else {
			_, err = s.conn.Sync(s.Path("/"))
		}
		p.answered <- outcomeOf(err) == definite
	})
	return p
}

// writeNothing deletes a node that does not exist. The quorum votes on that as on any other
// transaction.
func (s *session) writeNothing(c *zk.Conn) error {
	return c.Delete(s.client.chroot+"/"+s.newOwner().String(), -1)
}

// redialAfter returns the pause before the next attempt to connect, after this many failed ones.
// There is no pause until every address was tried. A session has a quarter of its timeout to come
// back with nothing lost, so the pauses take only a small part of that.
func redialAfter(failures, servers int, timeout time.Duration) time.Duration {
	rounds := failures / servers
	if rounds == 0 || failures%servers != 0 {
		return 0
	}
	most := max(min(time.Second, timeout/20), shortestPause)
	pause := min(shortestPause<<min(rounds-1, 10), most)
	return pause/2 + rand.N(pause)
}

const shortestPause = 10 * time.Millisecond

// A logger passes the messages of zk.Conn to the client's logger.
type logger struct{ s *session }

func (l logger) Printf(format string, args ...any) {
	format = strings.Replace(format, "authentication failed", "handshake failed", 1) // which has no credentials in it
	l.s.client.log.Debug("zk: "+strings.TrimSpace(fmt.Sprintf(format, args...)), "session", hexID(l.s.ID()))
}
