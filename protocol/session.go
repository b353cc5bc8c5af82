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

// A Session is one session with the ensemble, over one [zk.Conn] that lives and dies with it. What was begun
// under a session can never run under another.
//
// A session ends for good when the server says that it expired, when nothing was heard for its timeout, when
// something is held and trust has run out (see "Trust" in the package documentation), or when the client is
// closed. It is safe for concurrent use.
type Session struct {
	client *Client
	conn   *zk.Conn
	events <-chan zk.Event // closed when conn's goroutines have ended; lossy, and not used for anything else
	nonces atomic.Uint32

	containers atomic.Int32 // calls of CreateContainer that are under way

	watches watchTable

	life  context.Context // done when the session is over
	end   context.CancelCauseFunc
	wake  chan struct{} // tells keep that there is something new
	began chan struct{} // closed by the first handshake

	parting sync.Once
	parted  chan struct{} // closed by the first farewell

	mu       sync.Mutex // protects what follows; nothing blocks while it is held
	id       int64
	password []byte
	trust    trust
	zxid     int64         // the last one seen
	wire     *wire         // nil while there is no connection
	greeting *wire         // a connection whose handshake was not answered yet
	gate     chan struct{} // closed while there is one
	resumed  chan struct{} // closed, and made anew, by the next handshake that is answered
	engaged  int           // grants, contenders and whoever else needs answers: trust is kept fresh for them
	grants   map[*Grant]struct{}
	err      error
	expired  bool  // or closed: the server has said that nothing of the session is left
	failures int   // attempts to connect since the last handshake
	lastFail error // what the last of them died of

	engagedAt time.Time // when engaged was last zero
	wakes     time.Time // when keep looks at the clocks next
}

func newSession(c *Client) *Session {
	s := &Session{
		client:  c,
		wake:    make(chan struct{}, 1),
		began:   make(chan struct{}),
		parted:  make(chan struct{}),
		gate:    make(chan struct{}),
		resumed: make(chan struct{}),
		grants:  make(map[*Grant]struct{}),
	}
	s.nonces.Store(rand.Uint32())
	s.watches.session = s
	s.life, s.end = context.WithCancelCause(context.Background())
	return s
}

// ID is the session's number, as the server gave it.
func (s *Session) ID() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.id
}

// Timeout is the session timeout that the server granted, which may differ from the one asked for.
func (s *Session) Timeout() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.trust.timeout
}

// Deadline is when the session will be over if nothing more is heard from the ensemble. While something is held
// it is when trust runs out; otherwise when the server might expire the session. It moves on with every answer.
func (s *Session) Deadline() time.Time {
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
// Watches set through it end with the session. Keep what you send below [MaxData]: one size of a Multi just above a
// megabyte makes zk.Conn panic. Do not close it.
func (s *Session) Conn() *zk.Conn { return s.conn }

// Path is path with the chroot of the connect string in front.
func (s *Session) Path(path string) string {
	if path == "/" && s.client.chroot != "" {
		return s.client.chroot
	}
	return s.client.chroot + path
}

// Done is closed when the session is over. [Session.Err] then tells why, and may tell earlier.
func (s *Session) Done() <-chan struct{} { return s.life.Done() }

// Err is nil while the session can be trusted. After that it wraps [ErrLost], or [ErrClosed] too if the client was
// closed. It is computed from the clocks when it is called, and so is right in a process that has just been
// stopped for a minute, before anything else in it has noticed.
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

// overdue tells whether the clocks say that the session is over. The caller holds mu.
func (s *Session) overdue(now time.Time) error {
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
func (s *Session) finish(err error) {
	s.mu.Lock()
	if s.err != nil {
		s.mu.Unlock()
		return
	}
	s.err = err
	grants := maps.Clone(s.grants)
	cut := []*wire{s.greeting, s.wire}
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

// greet notes a connection on which the handshake is about to begin, and returns the last zxid seen.
func (s *Session) greet(w *wire) (zxid int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.greeting = w
	}
	return s.zxid, s.err
}

// seen notes the zxid of an answer.
func (s *Session) seen(zxid int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.zxid = max(s.zxid, zxid)
}

// latest is the number of the last transaction that any answer so far reflects.
func (s *Session) latest() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.zxid
}

// connected takes a connection whose handshake was answered into use, or refuses it. It tells whether zk.Conn
// is about to set watches again.
func (s *Session) connected(w *wire, h handshake) (rewatches bool, err error) {
	s.mu.Lock()
	overdue := s.overdue(time.Now())
	switch {
	case s.err != nil:
		err = s.err
	case overdue != nil: // what is over for those who look at the clock does not come back for the others
		err = overdue
	case s.id == 0 && h.id != 0:
		s.id, s.trust.timeout = h.id, h.timeout
		close(s.began)
	case h.id != s.id || h.id == 0:
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
		return false, err
	}
	s.password = h.password
	s.trust.timeout = h.timeout
	s.trust.began(w.dialled)
	if s.wire == nil { // or else nobody has got round yet to closing the gate behind the last one
		close(s.gate)
	}
	s.wire, s.greeting = w, nil
	close(s.resumed)
	s.resumed = make(chan struct{})
	s.mu.Unlock()

	s.client.review(s)
	s.poke()
	return s.watches.count() > 0, nil
}

// disconnected takes note that a connection has ended.
func (s *Session) disconnected(w *wire, why error) {
	s.mu.Lock()
	current := w != nil && s.wire == w
	if current {
		s.wire = nil
		s.gate = make(chan struct{})
	}
	if s.greeting == w {
		s.greeting = nil
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

// answered notes an answer.
func (s *Session) answered(r sentRequest, code int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if s.overdue(now) == nil && r.op != opSetAuth { // which servers do not count as a sign of life
		s.trust.answered(r.at, now, vouchedBy(r.op, code))
	}
	s.failures, s.lastFail = 0, nil // not before: a server may welcome us and hang up
	s.expired = s.expired || r.op == opCloseSession && code == 0
}

// await blocks until the session has a connection. It returns an error if ctx ends or the session is over first.
func (s *Session) await(ctx context.Context) error {
	for {
		if ctx.Err() != nil {
			return s.ended(ctx)
		}
		if err := s.Err(); err != nil {
			return err
		}
		s.mu.Lock()
		gate, connected := s.gate, s.wire != nil
		s.mu.Unlock()
		if connected {
			return nil
		}
		select {
		case <-gate:
		case <-s.Done():
		case <-ctx.Done():
			err := s.ended(ctx)
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.lastFail != nil {
				err = fmt.Errorf("%w: %w", err, s.lastFail)
			}
			return err
		}
	}
}

// resumption returns a channel that is closed when the session gets its next connection. Events may have been missed
// until then.
func (s *Session) resumption() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.resumed
}

// ended is why something under s could not go on, ctx or s having ended.
func (s *Session) ended(ctx context.Context) error {
	if ctx.Err() != nil && ctx != s.life {
		return contextError(ctx)
	}
	return context.Cause(s.life)
}

// engage keeps trust fresh until disengage is called.
func (s *Session) engage() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.engaged++
	if s.engaged == 1 {
		s.engagedAt = time.Now()
		s.wakeBy(s.engagedAt.Add(share(s.trust.timeout, syncShare)))
	}
}

// wakeBy has keep look at the clocks at that time, at the latest. The caller holds mu.
func (s *Session) wakeBy(at time.Time) {
	if s.wakes.After(at) {
		s.poke()
	}
}

func (s *Session) disengage() {
	s.mu.Lock()
	s.engaged--
	s.mu.Unlock()
}

// admit makes g something that the session holds, unless the session cannot be trusted at this moment: then it
// returns errStale, which confirm mends. Whoever asks is engaged; from then on g is.
func (s *Session) admit(g *Grant) error {
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

func (s *Session) dismiss(g *Grant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.grants, g)
	s.engaged--
}

// dispose takes a session that is over to its end: it is closed at the servers, unless they have ended it, and its
// goroutines are joined. Closing is tried until ctx ends.
func (s *Session) dispose(ctx context.Context) error {
	s.mu.Lock()
	w, opened := s.wire, s.id != 0
	s.mu.Unlock()
	if w == nil {
		<-s.parted
	}
	// zk.Conn reads the answer to CreateContainer while it may be written, if it is closed in between.
	for i := 0; i < 20 && s.containers.Load() > 0; i++ {
		time.Sleep(5 * time.Millisecond)
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
	return s.client.bury(ctx, s.ID(), password, timeout)
}

// newOwner is a name for one contender or claim of this session.
func (s *Session) newOwner() Owner { return Owner{s.ID(), s.nonces.Add(1)} }

func (s *Session) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// keep watches the clocks until the session is over, and asks the leader for confirmation while something is
// held or waited for and nothing else does.
func (s *Session) keep() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var ask question
	var asked time.Time
	for {
		select {
		case <-s.Done():
			return
		case <-ask.answered:
			ask = question{}
		case <-s.wake:
		case <-timer.C:
		}
		if s.Err() != nil {
			return
		}
		now := time.Now()
		s.mu.Lock()
		timeout, w, engaged := s.trust.timeout, s.wire, s.engaged > 0
		due, write := s.trust.due()
		// What has just begun asks for itself, and an answer that renews nothing must not make us spin.
		due = later(due, later(s.engagedAt, asked).Add(share(timeout, syncShare)))
		next := s.trust.contact.Add(timeout)
		if len(s.grants) > 0 {
			next = s.trust.deadline()
		}
		s.wakes = now.Add(timeout) // whoever is engaged meanwhile wakes us again
		s.mu.Unlock()

		if ask.of != w {
			ask = question{} // it went down with its connection
		}
		if w != nil && ask.of == nil && engaged && !now.Before(due) {
			ask, asked = s.ask(w, now, write), now
		}
		switch patience := ask.at.Add(share(timeout, silenceShare)); {
		case ask.of != nil && now.Before(patience):
			next = earlier(next, patience)
		case ask.of != nil:
			w.cut(fmt.Errorf("no answer from the leader for %v", now.Sub(ask.at).Round(time.Millisecond)))
		case w != nil && engaged:
			next = earlier(next, due)
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
	of       *wire
	at       time.Time
	answered chan struct{}
}

func (s *Session) ask(w *wire, now time.Time, write bool) question {
	q := question{w, now, make(chan struct{})}
	s.client.spawn(func() {
		defer close(q.answered)
		// What the answer says does not matter, and that there is one the wire notes.
		if write {
			s.writeNothing(s.conn)
		} else {
			s.conn.Sync(s.Path("/"))
		}
	})
	return q
}

// writeNothing deletes a node that does not exist, which is put to the vote like any other transaction.
func (s *Session) writeNothing(c *zk.Conn) error {
	return c.Delete(s.client.chroot+"/"+s.newOwner().String(), -1)
}

// confirm has a quorum confirm the session.
func (s *Session) confirm(ctx context.Context) error {
	_, err := Do(ctx, s, func(c *zk.Conn) (struct{}, error) {
		err := s.writeNothing(c)
		if outcomeOf(err) == definite {
			err = nil
		}
		return struct{}{}, err
	})
	return err
}

// redialAfter is how long to wait before the next attempt to connect, after that many failed ones: not at all
// until every server was tried, and never so long that a session of this timeout, which has a quarter of it to come
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
type logger struct{ s *Session }

func (l logger) Printf(format string, args ...any) {
	l.s.client.log.Debug("zk: "+strings.TrimSpace(fmt.Sprintf(format, args...)), "session", l.s.ID())
}
