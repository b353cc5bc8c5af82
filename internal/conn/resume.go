package conn

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/internal/trust"
	"github.com/zkrecipes/zkrecipes/internal/zkwire"
)

// beginHandshake notes a connection whose handshake is about to begin. It returns the zxid that the
// handshake must claim.
func (c *Conn) beginHandshake(w *Link) (zxid int64, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over == nil {
		c.handshaking = w
	}
	return c.newest, c.over
}

// connected puts a connection into use, after its handshake was answered with h. It returns the
// packets that set the session's watches again. If it returns an error, the connection ends.
func (c *Conn) connected(w *Link, h zkwire.ConnectResponse) (rewatch [][]byte, err error) {
	rewatch, err = c.takeInto(w, h)
	switch {
	case errors.Is(err, errExpired):
		c.host.Gone(fmt.Errorf("session %v expired", layout.SessionID(c.ID())))
	case err != nil:
		c.host.Err() // which ends a session that has ended by the clocks
	default:
		c.host.Changed(Connected)
	}

	return rewatch, err
}

// takeInto does the part of connected that needs mu.
func (c *Conn) takeInto(w *Link, h zkwire.ConnectResponse) (rewatch [][]byte, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	id, first := c.ID(), c.ID() == 0 && h.SessionID != 0

	switch {
	case c.over != nil:
		return nil, c.over
	case first:
	case id == 0:
		return nil, errors.New("the server refused to open a session")
	case h.SessionID == id:
	case w.former: // today another ensemble may have the address
		return nil, errFormer
	default:
		// For an expired session most servers answer with number 0, and some with a new session.
		// zk.Conn must see neither, because it would go on in a new session.
		c.expired = true
		return nil, errExpired
	}

	// Confirming the session comes first: a long request that is repeated before could delay the
	// quorum's answer for too long.
	hold, err := c.host.Resume(w.dialled, h.Timeout)
	if err != nil {
		return nil, err
	}

	if first {
		c.id.Store(h.SessionID)
		close(c.began)
	}
	c.password, c.timeout = secretOf(h.Password), h.Timeout
	c.accepted = [2]time.Time{c.accepted[1], w.dialled}
	c.link, c.handshaking, c.shutOut = w, nil, 0
	if !hold {
		c.admit()
	}

	close(c.resumed)
	c.resumed = make(chan struct{})
	return c.rewatch(), nil
}

var (
	errExpired = errors.New("session expired")
	errFormer  = errors.New("session unknown at an address that its server had before")
)

// maxRefusals is how often servers that answer may refuse a session that may have expired.
const maxRefusals = 20

// refusedAgain notes that a server which answers has hung up on the session. A server does that if
// it has seen fewer transactions than the session. If all servers do, they have lost their data,
// and only another session can go on.
func (c *Conn) refusedAgain() {
	c.mu.Lock()
	c.shutOut++
	over := c.shutOut > maxRefusals
	c.mu.Unlock()
	if over {
		c.ensemble.Spawn(func() { c.host.Gone(fmt.Errorf("no server lets session %v in", layout.SessionID(c.ID()))) })
	}
}

// disconnected notes that a connection or an attempt has ended. w is nil if there was no
// connection.
func (c *Conn) disconnected(w *Link, why error) {
	c.mu.Lock()
	current := w != nil && c.link == w
	if current {
		c.link = nil
		if IsClosed(c.gate) {
			c.gate = make(chan struct{})
		}
	}

	if c.handshaking == w {
		c.handshaking = nil
	}
	// Only what leaves the session without a connection counts as a failure.
	if c.link == nil {
		if c.failures++; c.failures == 1 {
			c.failing = time.Now()
		}
		c.lastFail = why
	}

	c.mu.Unlock()

	if current {
		c.host.Changed(Disconnected)
	} else {
		c.host.Changed(Failed)
	}
}

// seen notes the zxid of an answer or an event. It feeds two numbers that must not be confused:
//
//   - newest goes into the next connect request. A server that doesn't have this transaction yet
//     refuses the session. If newest were too small, the session could go back in time.
//   - settled goes into the next request to set watches again. Servers then report changes after
//     it. So it must not pass an event that wasn't delivered. Events come in order with the
//     answers, except from watches that aren't set on this connection yet. Until they are set,
//     settled stays. (If it's too small, a watch fires for a change that its owner has seen. That
//     does no harm.)
func (c *Conn) seen(zxid int64, settles bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.newest = max(c.newest, zxid)
	if settles {
		c.settled = max(c.settled, zxid)
	}
}

// answered notes an answer to r over w.
func (c *Conn) answered(w *Link, r sentRequest, code zkwire.Code, by trust.Witness) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.expired = c.expired || r.op == zkwire.OpCloseSession && code == zkwire.CodeOK
	if r.op == zkwire.OpAuth { // servers don't count it as a sign of life
		if code == zkwire.CodeOK {
			w.proved++
			c.proved = max(c.proved, w.proved)
		}
		return
	}

	now := time.Now()
	if by == trust.Quorum && c.link == w {
		c.admit()
	}
	c.host.Answered(r.at, now, by)

	// A server can accept the session, answer a request and hang up, again and again. So one answer
	// doesn't end the pauses between attempts to connect.
	if by != trust.Member || now.Sub(w.dialled) >= trust.Silence.Of(c.timeout) {
		c.failures, c.lastFail = 0, nil
	}
}

// warn logs, at most once a minute, that the server refuses requests (if this code says so). The
// caller does not hold mu.
func (c *Conn) warn(code zkwire.Code) {
	if !slices.Contains(refusals, code) {
		return
	}
	c.mu.Lock()
	due := time.Since(c.warned) >= time.Minute
	if due {
		c.warned = time.Now()
	}

	c.mu.Unlock()
	if due {
		c.host.Log(slog.LevelWarn, "server refuses requests, which are tried again",
			"session", layout.SessionID(c.ID()), "error", code.String())
	}
}

// refusals are the codes with which a server refuses requests that may succeed later.
var refusals = []zkwire.Code{zkwire.CodeConnectionLoss, zkwire.CodeSessionMoved, zkwire.CodeReadOnly, zkwire.CodeThrottled}
