// Package conn makes one connection after another for one session: it finds servers, dials them,
// shakes hands, sets watches again, and says whether requests were executed. Its [Host] decides how
// long the session can be trusted.
//
// Mutexes are taken in this order: the mutex of a [Link], the mutex of its [Conn], the mutexes of
// the Host.
package conn

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/pace"
)

// A Conn connects one session, over one zk.Conn. It is safe for concurrent use.
type Conn struct {
	ensemble *Ensemble
	host     Host
	life     context.Context // done when the session has ended
	zk       *zk.Conn
	events   <-chan zk.Event // closed when zk's goroutines have ended; it loses events, so only that counts
	ownXids  atomic.Uint32   // how many xids of our own were used: see ownXid
	Watches  Watches

	began    chan struct{} // closed by the first handshake
	id       atomic.Int64  // 0 before that
	stubbing sync.Once
	stubbed  chan struct{} // closed when zk was first connected to a stub

	mu          sync.Mutex // protects the fields below; nothing blocks while it is held
	password    secret
	timeout     time.Duration            // the timeout granted last
	newest      int64                    // the highest zxid in any answer or event so far
	settled     int64                    // no event of a watch up to this zxid is missing
	watched     map[string]watchKinds    // the watches that zk has set, by path
	creations   map[string]*atomic.Int64 // see NoteCreate
	link        *Link                    // nil while there is no connection
	handshaking *Link                    // a connection whose handshake is under way
	proved      int                      // how many credentials a server has accepted, which zk repeats on each connection
	gate        chan struct{}            // closed while requests may be made
	resumed     chan struct{}            // closed, and made anew, when a handshake is answered
	over        error                    // why no more connections are used
	expired     bool                     // the server has said that the session has ended
	failures    int                      // attempts to connect since the last useful connection
	failing     time.Time                // when the first of these attempts failed
	lastFail    error                    // the error of the last of these attempts
	shutOut     int                      // how often a server that answers has refused the session since then
	accepted    [2]time.Time             // when the last two accepted connections were dialled
	warned      time.Time                // when refusals were last logged
}

// New returns a Conn for a session that lasts as long as life.
func New(life context.Context, e *Ensemble, host Host) *Conn {
	c := &Conn{
		ensemble: e, host: host, life: life,
		began:     make(chan struct{}),
		stubbed:   make(chan struct{}),
		gate:      make(chan struct{}),
		resumed:   make(chan struct{}),
		password:  secretOf(nil),
		creations: make(map[string]*atomic.Int64),
	}
	c.Watches.conn = c
	return c
}

// Began returns a channel that is closed when the session has begun.
func (c *Conn) Began() <-chan struct{} { return c.began }

// ID returns the session ID that the servers have given out, or 0 before that.
func (c *Conn) ID() int64 { return c.id.Load() }

// Timeout returns the session timeout granted last, or 0 before the first handshake.
func (c *Conn) Timeout() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.timeout
}

// ZK returns the zk.Conn. Call it after Open.
func (c *Conn) ZK() *zk.Conn { return c.zk }

// Link returns the current connection, or nil if there is none.
func (c *Conn) Link() *Link {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.link
}

// Gate returns a channel that is closed once requests may be made.
func (c *Conn) Gate() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.gate
}

// Admit lets requests go on that the host has held, if there is a connection and the host holds
// nothing any more.
func (c *Conn) Admit() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.link != nil && !c.host.Holds() {
		c.admit()
	}
}

// admit wakes the calls that wait for a connection. The caller holds mu.
func (c *Conn) admit() {
	if !IsClosed(c.gate) {
		close(c.gate)
	}
}

// Resumption returns a channel that is closed when the session gets its next connection. Until then
// the session can miss events.
func (c *Conn) Resumption() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.resumed
}

// LastFailure returns the error of the last attempt to connect, or nil if there is a connection.
func (c *Conn) LastFailure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lastFail
}

// End cuts the connection, and no other connection is used. If closes is true, the current
// connection stays so that the session can be closed over it.
func (c *Conn) End(why error, closes bool) {
	c.mu.Lock()
	if c.over == nil {
		c.over = why
	}
	cut := []*Link{c.handshaking, c.link}
	c.mu.Unlock()
	// A handshake under way is cut in any case: it could bring back a session that has ended.
	if closes {
		cut = cut[:1]
	}

	for _, w := range cut {
		if w != nil {
			w.Cut(why)
		}
	}
}

// Forget makes Close leave the session to the servers.
func (c *Conn) Forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.expired = true
}

// Ended reports whether zk.Conn has ended (its user can close it).
func (c *Conn) Ended() bool {
	for {
		select {
		case _, open := <-c.events:
			if !open {
				return true
			}
		default:
			return false
		}
	}
}

// Attempt calls op once there is a connection. op makes one call of zk.Conn. If ctx or the session
// ends first, Attempt returns before op does.
func Attempt[T any](ctx context.Context, c *Conn, op func(*zk.Conn) (T, error)) (v T, out Outcome, err error) {
	if c.Lasts(ctx) { // zk.Conn ends the call when the session does
		v, err := op(c.zk)
		return v, OutcomeOf(err), named(c.ensemble.Refusals, err)
	}
	return attemptApart(ctx, c, op)
}

// attemptApart calls op in a goroutine of its own. (It is not part of [Attempt], so its frame is
// not on the stack of a call that lasts as long as the session.)
func attemptApart[T any](ctx context.Context, c *Conn, op func(*zk.Conn) (T, error)) (v T, out Outcome, err error) {
	type result struct {
		v   T
		err error
	}
	// It has room, so that the goroutine ends even though the caller has left.
	answer := make(chan result, 1)
	started := c.ensemble.Spawn(func() {
		r := result{err: errOpEnded} // unless op returns
		defer func() { answer <- r }()
		r.v, r.err = op(c.zk)
	})
	if !started {
		return v, NotSent, context.Cause(c.ensemble.Closing)
	}

	select {
	case r := <-answer:
		return r.v, OutcomeOf(r.err), named(c.ensemble.Refusals, r.err)
	case <-ctx.Done():
	case <-c.life.Done():
	}

	return v, Unknown, c.Why(ctx)
}

var errOpEnded = pace.Foreign("operation", nil)

// NoteCreate stores in zxid which transaction created a node at this absolute path (without the
// sequence number), until end is called. A server answers a write with the zxid up to which it has
// executed transactions, before it executes the next transaction. So the answer's zxid is the
// node's czxid.
func (c *Conn) NoteCreate(path string, zxid *atomic.Int64) (end func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.creations[path] = zxid
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.creations, path)
	}
}

// creation returns what [Conn.NoteCreate] was given for a path, or nil.
func (c *Conn) creation(path []byte) *atomic.Int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.creations[string(path)]
}

// Lasts reports whether ctx lasts exactly as long as the session.
func (c *Conn) Lasts(ctx context.Context) bool { return ctx.Done() == c.life.Done() }

// Why returns why a call failed after ctx or the session ended. If there is no connection, the
// error includes the last attempt to connect.
func (c *Conn) Why(ctx context.Context) error {
	if ctx.Err() == nil || c.life.Err() != nil && context.Cause(ctx) == context.Cause(c.life) {
		return context.Cause(c.life)
	}
	err := ContextError(ctx) // before the lock: the context of a grant asks the session
	if failed := c.LastFailure(); failed != nil {
		return fmt.Errorf("%w: %w", err, failed)
	}

	return err
}
