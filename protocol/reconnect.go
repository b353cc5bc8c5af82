package protocol

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkwire"
)

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

// sleep blocks for d, or until over is closed. It has no timer that is due at once, and nor has
// anything else here: with two such timers in a testing/synctest bubble the race detector of Go
// before 1.27 may crash. See package recipestest.
func sleep(d time.Duration, over <-chan struct{}) {
	if d <= 0 {
		return
	}
	select {
	case <-time.After(d):
	case <-over:
	}
}
