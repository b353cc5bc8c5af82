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

// A Session is one session with the ensemble, over one [zk.Conn] that lives and dies with it. What was begun
// under a session can never run under another.
//
// A session ends for good when the server says that it expired, when nothing was heard for its timeout, when
// something is held and trust has run out (see "Trust" in the package documentation), or when the client is
// closed. It is safe for concurrent use.
//
// A Session is bound to the [Client] that returned it: requests that go through it use that client's ACL, back-off,
// logger and observer. Clients that [Client.With] has made share the session with the same ID.
type Session struct {
	*session
	client *Client
}

// A session is what the Sessions of all views of a client share.
type session struct {
	client *Client  // the one that Connect returned
	base   *Session // bound to that
	conn   *zk.Conn
	events <-chan zk.Event // closed when conn's goroutines have ended; lossy, and not used for anything else
	nonces atomic.Uint32

	watches watchTable

	life  context.Context // done when the session is over
	end   context.CancelCauseFunc
	wake  chan struct{} // tells keep that there is something new
	began chan struct{} // closed by the first handshake

	stubbing sync.Once
	stubbed  chan struct{} // closed when zk.Conn was first connected to a stub

	mu          sync.Mutex // protects what follows; nothing blocks while it is held
	id          int64
	password    []byte
	trust       trust
	newest      int64                 // the last transaction that the session knows of, by any answer or event
	settled     int64                 // up to here no event of any watch is missing
	watched     map[string]watchKinds // the watches that zk.Conn has set
	wire        *connection           // nil while there is no connection
	handshaking *connection           // a connection whose handshake was not answered yet
	ready       bool                  // requests may be made
	gate        chan struct{}         // closed while ready
	resumed     chan struct{}         // closed, and made anew, by the next handshake that is answered
	engaged     int                   // grants, contenders and whoever else needs answers: trust is kept fresh for them
	grants      map[*Grant]struct{}
	err         error
	expired     bool         // or closed: the server has said that nothing of the session is left
	failures    int          // attempts to connect since the last connection of use
	lastFail    error        // what the last of them died of
	accepted    [2]time.Time // when the last two connections were dialled whose handshake was answered
	limits      limits

	warned    time.Time // when the logger was last told of refusals
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
	}
	s.base = &Session{s, c}
	s.nonces.Store(rand.Uint32())
	s.watches.session = s
	s.life, s.end = context.WithCancelCause(context.Background())
	return s
}

// ID is the session's number, as the server gave it.
func (s *session) ID() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.id
}

// Timeout is the session timeout that the server granted, which may differ from the one asked for.
func (s *session) Timeout() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.trust.timeout
}

// Deadline is when the session will be over if nothing more is heard from the ensemble. While something is held
// it is when trust runs out; otherwise when the server might expire the session. It moves on with every answer.
func (s *session) Deadline() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.engaged > 0 {
		return s.trust.deadline()
	}
	return s.trust.contact.Add(s.trust.timeout)
}

// Conn is the session's connection, for reads and Multi calls of your own. Its paths are absolute: put
// [Session.Path] around those that are not. Its calls block until they are answered or the connection breaks,
// whatever your ctx says, and calls made while there is no connection wait for the next one of this session.
// Watches set through it survive any number of broken connections, and end with the session: each fires once for
// whatever happened since it was set, early or late. It may also fire for a change that its owner knows already. As
// with every ZooKeeper client, a node that was created and deleted again while there was no connection has never existed
// for a watch that waits for it. Keep what you send below [MaxData]: one size of a Multi just above a
// megabyte makes zk.Conn panic. Do not close it.
func (s *session) Conn() *zk.Conn { return s.conn }

// Path is path with the chroot of the connect string in front.
func (s *session) Path(path string) string {
	if path == "/" && s.client.chroot != "" {
		return s.client.chroot
	}
	return s.client.chroot + path
}

// Done is closed when the session is over. [Session.Err] then tells why, and may tell earlier.
func (s *session) Done() <-chan struct{} { return s.life.Done() }

// Err is nil while the session can be trusted. After that it wraps [ErrLost], or [ErrClosed] too if the client was
// closed. It is computed from the clocks when it is called, and so is right in a process that has just been
// stopped for a minute, before anything else in it has noticed.
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

// overdue tells whether the clocks say that the session is over. The caller holds mu.
func (s *session) overdue(now time.Time) error {
	switch {
	case s.id == 0:
		return nil
	case len(s.grants) > 0 && s.trust.over(now):
		return fmt.Errorf("%w: session %#x: %s", ErrLost, s.id, s.trust.lapse(now))
	case s.trust.silent(now):
		return fmt.Errorf("%w: session %#x was silent for %v", ErrLost, s.id,
			elapsed(s.trust.contact, now).Round(time.Millisecond))
	}
	return nil
}

// finish ends the session, once: its connection is cut, everything it held is lost, everybody who waits is told.
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
		cut = cut[:1] // the other one is needed to close the session
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

// beginHandshake notes a connection on which the handshake is about to begin, and returns the last zxid seen.
func (s *session) beginHandshake(w *connection) (zxid int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.handshaking = w
	}
	return s.newest, s.err
}

// seen notes the zxid of an answer or an event. Two numbers come of it, which must not be taken for each other.
//
// newest goes into the next connect request: a server that does not know that transaction yet refuses us. It may
// not be smaller than anything that was seen, or the session goes back in time.
//
// settled goes into the next request to set watches again: servers report what has happened after it. It may
// not be greater than the transaction of an event that was not delivered. Events come in order with the answers, but for
// watches that are not set on this connection yet; until they are, settled stays where it is. Where it is too
// small a watch fires for a change that its owner knows.
func (s *session) seen(zxid int64, settles bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.newest = max(s.newest, zxid)
	if settles {
		s.settled = max(s.settled, zxid)
	}
}

// latest is the number of a transaction that all events happen after which are still to come.
func (s *session) latest() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.settled
}

// connected takes a connection whose handshake was answered into use, or refuses it. It returns the packets that
// set the session's watches again there.
func (s *session) connected(w *connection, h zkwire.ConnectResponse) (rewatch [][]byte, err error) {
	s.mu.Lock()
	overdue := s.overdue(time.Now())
	switch {
	case s.err != nil:
		err = s.err
	case overdue != nil: // what is over for those who look at the clock does not come back for the others
		err = overdue
	case s.id == 0 && h.SessionID != 0:
		s.id, s.trust.timeout = h.SessionID, h.Timeout
		close(s.began)
	case h.SessionID != s.id || h.SessionID == 0:
		// An expired session is answered with number 0; some servers just give out a new one. Either way
		// zk.Conn must not get to see it: it would go on in that.
		err = fmt.Errorf("%w: session %#x expired", ErrLost, s.id)
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
	s.password = h.Password
	s.trust.timeout = h.Timeout
	s.trust.began(w.dialled)
	s.accepted = [2]time.Time{s.accepted[1], w.dialled}
	s.wire, s.handshaking = w, nil
	// What is held comes first: a long request that is made again would keep a quorum from confirming it in time.
	if len(s.grants) == 0 || elapsed(s.trust.agreed, time.Now()) < h.Timeout/2 {
		s.admitRequests()
	}
	close(s.resumed)
	s.resumed = make(chan struct{})
	rewatch = s.rewatch(s.settled)
	s.mu.Unlock()

	s.client.review(s)
	s.poke()
	return rewatch, nil
}

// disconnected takes note that a connection has ended.
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
	s.mu.Unlock()
	if current {
		s.client.review(s)
		s.poke()
	}
}

// admitRequests lets those go on who wait for a connection. The caller holds mu.
func (s *session) admitRequests() {
	if !s.ready {
		s.ready = true
		close(s.gate)
	}
}

// ceased notes with which requests unanswered a connection has ended.
func (s *session) ceased(sent []sentRequest, why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limits.ended(sent, byOtherSide(why))
}

// answered notes an answer that has come over w.
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

	// A server may welcome us, answer a request, and hang up, again and again. So one answer is no proof that
	// the next attempt to connect need not be paced.
	if by != byServer || now.Sub(w.dialled) >= share(s.trust.timeout, silenceShare) {
		s.failures, s.lastFail = 0, nil
	}
}

// warn has the logger told, once a minute, that the server refuses requests, if this error code says so. The caller does
// not hold mu: the client's lock, which spawn takes, comes before it.
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
		s.client.spawn(func() { // the caller does not wait for a logger
			s.client.log.Warn("server refuses requests, which are tried again", "session", s.ID(), "error", code.String())
		})
	}
}

// refusals are the errors with which a server refuses requests that may succeed later, by code.
var refusals = []zkwire.Code{zkwire.CodeConnectionLoss, zkwire.CodeSessionMoved, zkwire.CodeThrottled}

// await blocks until the session has a connection. It returns an error if ctx ends or the session is over first.
func (s *session) await(ctx context.Context) error {
	for {
		if ctx.Err() != nil {
			return s.ended(ctx)
		}
		if err := s.Err(); err != nil {
			return err
		}
		s.mu.Lock()
		gate, connected := s.gate, s.ready
		s.mu.Unlock()
		if connected {
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

// connection returns the present connection, or nil if there is none.
func (s *session) connection() *connection {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.wire
}

// resumption returns a channel that is closed when the session gets its next connection. Events may have been missed
// until then.
func (s *session) resumption() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.resumed
}

// ended returns why something under s could not go on, ctx or s having ended. It tells what the last attempt to connect
// died of, if the connection is in trouble.
func (s *session) ended(ctx context.Context) error {
	if ctx.Err() == nil || ctx == s.life {
		return context.Cause(s.life)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lastFail != nil {
		return fmt.Errorf("%w: %w", contextError(ctx), s.lastFail)
	}
	return contextError(ctx)
}

// engage keeps trust fresh until disengage is called.
func (s *session) engage() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.engaged++
	if s.engaged == 1 {
		s.engagedAt = time.Now()
		s.wakeBy(s.engagedAt.Add(share(s.trust.timeout, syncShare)))
	}
}

// wakeBy has keep look at the clocks at that time, at the latest. The caller holds mu.
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

// admit makes g something that the session holds, unless the session cannot be trusted at this moment: then it
// returns errStale, which confirm mends. Whoever asks is engaged; from then on g is.
func (s *session) admit(g *Grant) error {
	if err := s.Err(); err != nil {
		return err
	}
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

func (s *session) dismiss(g *Grant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.grants, g)
	s.engaged--
	if len(s.grants) == 0 && s.wire != nil {
		s.admitRequests()
	}
}

// dispose takes a session that is over to its end: it is closed at the servers, unless they have ended it, and its
// goroutines are joined. Closing is tried until ctx ends.
func (s *session) dispose(ctx context.Context) error {
	s.mu.Lock()
	w, opened := s.wire, s.id != 0
	s.mu.Unlock()
	if w == nil {
		<-s.stubbed
	}
	s.conn.Close() // takes a second if there is a connection on which nobody answers
	if w != nil {
		w.cut(net.ErrClosed)
	}
	for range s.events {
		// Nothing is of interest but the end.
	}
	s.mu.Lock()
	gone, password, timeout := s.expired, s.password, s.trust.timeout
	s.mu.Unlock()
	if gone || !opened {
		return nil
	}
	return s.client.closeOrphan(ctx, s.ID(), password, timeout)
}

// newOwner is a name for one contender or claim of this session.
func (s *session) newOwner() Owner { return Owner{s.ID(), s.nonces.Add(1)} }

func (s *session) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// keep watches the clocks until the session is over, and asks the leader for confirmation while something is
// held or waited for and nothing else does.
func (s *session) keep() {
	timer := time.NewTimer(0)
	defer timer.Stop()

	var asks questions
	var asked time.Time
	var slow time.Duration // how long the leader may take, if that is longer than usual
	for {
		select {
		case <-s.Done():
			return
		case answered := <-asks.oldest():
			// A sync may be fast where a write is slow.
			if took := time.Since(asks[0].at); answered && (asks[0].write || 2*took > slow) {
				slow = 2 * took
			}
			asks = asks[1:]
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
		if len(asks) > 0 && asks[0].of != w { // they went down with their connection
			asks, asked = nil, time.Time{}
		}
		due, write := s.trust.due(asks.write())
		// What has just begun asks for itself, and an answer that renews nothing must not make us spin.
		due = later(due, later(s.engagedAt, asked).Add(share(timeout, syncShare)))
		s.wakes = now.Add(timeout) // whoever is engaged meanwhile wakes us again
		s.mu.Unlock()

		if w != nil && engaged && !now.Before(due) {
			// Also while earlier ones are under way: reports of contacts are then as close together as usual.
			asks, asked = append(asks, s.ask(w, now, write)), now
			due = now.Add(share(timeout, syncShare))
		}

		next := end
		if w != nil && engaged {
			next = earlier(next, due)
		}

		// A server that stays silent has to be left while there is time for another one. Where the one before was
		// left for the same reason, or answers have been slow, it is the quorum that takes its time, and leaving
		// would only begin the wait anew.
		usual := share(timeout, silenceShare)
		if len(asks) > 0 {
			limit := later(asks[0].at, w.progressed()).Add(max(usual, slow))
			if now.Before(limit) {
				next = earlier(next, limit)
			} else {
				slow = min(2*max(usual, slow), timeout)
				w.cut(fmt.Errorf("no answer from the leader for %v", now.Sub(asks[0].at).Round(time.Millisecond)))
			}
		}

		// The leader takes part in a resumption, which may renew trust that is about to run out.
		if w != nil && holds {
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

// A question is a request under way that renews trust.
type question struct {
	of       *connection
	at       time.Time
	write    bool
	answered chan bool // gets whether there was an answer
}

// questions are those not answered yet, oldest first. Answers come in that order.
type questions []question

func (q questions) oldest() <-chan bool {
	if len(q) == 0 {
		return nil
	}
	return q[0].answered
}

// write reports whether one of them is a write.
func (q questions) write() bool {
	return slices.ContainsFunc(q, func(q question) bool { return q.write })
}

func (s *session) ask(w *connection, now time.Time, write bool) question {
	q := question{w, now, write, make(chan bool, 1)}
	s.client.spawn(func() {
		// What the answer says does not matter, and that there is one the wire notes.
		var err error
		if write {
			err = s.writeNothing(s.conn)
		} else {
			_, err = s.conn.Sync(s.Path("/"))
		}
		q.answered <- outcomeOf(err) == definite
	})
	return q
}

// writeNothing deletes a node that does not exist, which is put to the vote like any other transaction.
func (s *session) writeNothing(c *zk.Conn) error {
	return c.Delete(s.client.chroot+"/"+s.newOwner().String(), -1)
}

// redialAfter is how long to wait before the next attempt to connect, after that many failed ones: not at all
// until every address was tried, and never so long that a session of this timeout, which has a quarter of it to come
// back with nothing lost, would spend most of that on waiting.
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

// logger passes what zk.Conn has to say to the client's logger.
type logger struct{ s *session }

func (l logger) Printf(format string, args ...any) {
	l.s.client.log.Debug("zk: "+strings.TrimSpace(fmt.Sprintf(format, args...)), "session", l.s.ID())
}
