// Package conn makes one connection after another for one session: it finds servers, dials them,
// shakes hands, sets watches again, and says what has become of requests. What the session is worth,
// and how long it may be trusted, its [Host] decides.
//
// Mutexes are taken in this order: that of a [Link], that of its [Conn], those of the Host.
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
	ensemble  *Ensemble
	host      Host
	life      context.Context // done when the session is over
	zk        *zk.Conn
	events    <-chan zk.Event // closed when zk's goroutines have ended; lossy, so used for nothing else
	creations creations
	Watches   Watches

	began    chan struct{} // closed by the first handshake
	id       atomic.Int64  // 0 before that
	stubbing sync.Once
	stubbed  chan struct{} // closed when zk was first connected to a stub

	mu          sync.Mutex // protects what follows; nothing blocks while it is held
	password    secret
	timeout     time.Duration         // that was granted last
	newest      int64                 // the newest transaction that an answer or event has told of
	settled     int64                 // the transaction up to which no event of a watch is missing
	watched     map[string]watchKinds // the watches that zk has set, by path
	link        *Link                 // nil while there is no connection
	handshaking *Link                 // a connection whose handshake is under way
	ready       bool                  // requests may be made
	gate        chan struct{}         // closed while ready
	resumed     chan struct{}         // closed, and made anew, when a handshake is answered
	over        error                 // why no other connection is taken into use
	expired     bool                  // or closed: the server has said that the session is gone
	failures    int                   // attempts to connect since the last useful connection
	failing     time.Time             // when the first of these has failed
	lastFail    error                 // the error of the last of these attempts
	shutOut     int                   // how often servers that answer have not let the session in since then
	accepted    [2]time.Time          // when the last two connections that the servers have accepted were dialled
	warned      time.Time             // when refusals were last logged
}

// New returns a Conn for a session that lasts as long as life.
func New(life context.Context, e *Ensemble, host Host) *Conn {
	c := &Conn{
		ensemble: e, host: host, life: life,
		began:    make(chan struct{}),
		stubbed:  make(chan struct{}),
		gate:     make(chan struct{}),
		resumed:  make(chan struct{}),
		password: secretOf(nil),
	}
	c.Watches.conn = c
	return c
}

// Began returns a channel that is closed when the session has begun.
func (c *Conn) Began() <-chan struct{} { return c.began }

// ID returns the session ID that the servers have given out, or 0 before that.
func (c *Conn) ID() int64 { return c.id.Load() }

// Timeout returns the session timeout that was granted last, or 0 before the first handshake.
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

// Gate returns whether requests may be made, and a channel that is closed once they may.
func (c *Conn) Gate() (gate <-chan struct{}, ready bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.gate, c.ready
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

// admit lets calls go on that wait for a connection. The caller holds mu.
func (c *Conn) admit() {
	if !c.ready {
		c.ready = true
		close(c.gate)
	}
}

// Resumption returns a channel that is closed when the session gets its next connection. Events may
// be missed from now until then.
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

// End cuts the connection, and takes no other one into use. If the session is to be closed, the
// connection is kept for that.
func (c *Conn) End(why error, closes bool) {
	c.mu.Lock()
	if c.over == nil {
		c.over = why
	}
	cut := []*Link{c.handshaking, c.link}
	c.mu.Unlock()
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

// Ended reports whether zk.Conn has ended, which its user may have closed.
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

// Attempt makes one call of op, which makes one of zk.Conn, once there is a connection. It returns
// before op does if ctx or the session ends.
func Attempt[T any](ctx context.Context, c *Conn, op func(*zk.Conn) (T, error)) (v T, out Outcome, err error) {
	if c.Lasts(ctx) { // zk.Conn ends the call when the session does
		v, err := op(c.zk)
		return v, OutcomeOf(err), named(c.ensemble.Refusals, err)
	}

	type result struct {
		v   T
		err error
	}
	answer := make(chan result, 1)
	started := c.ensemble.Spawn(func() {
		r := result{err: pace.Foreign("operation", nil)}
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

// NoteCreate notes in zxid by which transaction a node is created at an absolute path, until end is
// called.
func (c *Conn) NoteCreate(path string, zxid *atomic.Int64) (end func()) {
	c.creations.begin(path, zxid)
	return func() { c.creations.end(path) }
}

// Lasts reports whether ctx lasts exactly as long as the session.
func (c *Conn) Lasts(ctx context.Context) bool { return ctx.Done() == c.life.Done() }

// Why returns why a call could not go on, after ctx or the session has ended. If there is no
// connection, it includes the error of the last attempt to connect.
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
