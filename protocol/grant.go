package protocol

import (
	"context"
	"errors"
	"fmt"
	"path"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
)

// A Grant is something that is held: a lock, a leader's term, a claim. It stands for one node of one session, and
// is over for good as soon as that session cannot be trusted any more or the node is gone. It is safe for
// concurrent use.
type Grant struct {
	client  *Client
	session *Session
	recipe  string
	path    string // of the recipe, without the chroot
	node    string // absolute
	token   int64
	since   time.Time
	remove  func(context.Context) error // deletes the node

	life context.Context // done when the grant is over; its cause is why
	end  context.CancelCauseFunc

	mu         sync.Mutex // protects what follows
	guard      *time.Timer
	converting chan struct{} // not nil while Convert is at work; closed when it is done

	removal *detached     // in which a grant that was given back loses its node
	removed chan struct{} // closed when it has none any more
	outcome error         // of that; valid once removed is closed
}

// guardAfter is how long something must be held before its node is watched, which costs a packet.
const guardAfter = 20 * time.Millisecond

// grant makes a node of ours something that is held. It fails with errStale if the session cannot be trusted now.
func (c *Client) grant(s *Session, recipe, path, node string, token int64, remove func(context.Context) error) (*Grant, error) {
	g := &Grant{
		client: c, session: s,
		recipe: recipe, path: path, node: node, token: token,
		since:   time.Now(),
		remove:  remove,
		removal: detach(context.Background(), s.session),
		removed: make(chan struct{}),
	}
	g.life, g.end = context.WithCancelCause(context.Background())
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := s.admit(g); err != nil {
		return nil, err
	}
	g.guard = time.AfterFunc(guardAfter, func() { c.spawn(g.watch) })
	return g, nil
}

// watch tells the holder when its node is deleted.
func (g *Grant) watch() {
	warned := false
	for g.life.Err() == nil {
		w := g.session.watches.on(g.session, g.node)
		_, err := w.stand(g.life)
		if err == nil {
			select {
			case <-w.fired:
			case <-g.life.Done():
			}
			continue
		}

		// A node that may not be read has no watch. But whether there is one, every client may ask.
		if g.life.Err() == nil && !errors.Is(err, zk.ErrNoNode) {
			if !warned {
				g.client.log.Warn("node of a grant not watched", "node", g.node, "error", err)
				warned = true
			}
			_, err = g.stat(g.life)
		}
		if errors.Is(err, zk.ErrNoNode) {
			g.unconverted()
			if gone, err := g.missing(g.life); gone {
				return
			} else if err == nil {
				continue
			}
		}
		select {
		case <-time.After(g.session.Timeout()):
		case <-g.life.Done():
		}
	}
}

// missing finds out whether the node is gone, which a server that lags may have said too early, and ends the grant if
// so. The node is deleted all the same: what is believed to be gone must not stand in line for the rest of the session.
func (g *Grant) missing(ctx context.Context) (gone bool, err error) {
	if err := g.session.sync(ctx, g.node); err != nil {
		return false, err
	}
	if _, err := g.stat(ctx); !errors.Is(err, zk.ErrNoNode) {
		return false, err
	}
	g.lose(fmt.Errorf("%w: node %s was deleted", ErrLost, g.Node()))
	g.client.spawn(func() { g.session.remove(g.session.life, g.node) })
	return true, nil
}

// stat returns the Stat of the grant's node. It needs no permission.
func (g *Grant) stat(ctx context.Context) (*zk.Stat, error) {
	return Do(ctx, g.session, func(c *zk.Conn) (*zk.Stat, error) {
		there, stat, err := c.Exists(g.node)
		if err == nil && !there {
			err = zk.ErrNoNode
		}
		return stat, err
	})
}

// Done is closed when the grant is lost or given back. [Grant.Err] then tells which, and may tell of a loss
// earlier.
func (g *Grant) Done() <-chan struct{} { return g.life.Done() }

// Err is nil while the grant is held. After that it wraps [ErrLost] and the cause of the loss, or [ErrReleased].
// It is computed from the clocks when it is called: in a process that was stopped it tells of the loss before
// anything else in that process has noticed.
func (g *Grant) Err() error {
	if g.life.Err() == nil {
		// A session that is found to be over here and now ends its grants before it says so.
		if err := g.session.Err(); err != nil {
			g.lose(err)
		}
	}
	return context.Cause(g.life)
}

// Context returns a context with parent's values and deadline that is also cancelled when the grant is over, with
// [Grant.Err] as its cause. Like that its Err is computed from the clocks. The Err of contexts that are derived from it is
// not: in a process that was stopped those end a moment later. The function that comes with it releases what it
// holds, and should be called when the work that it bounds is done.
func (g *Grant) Context(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	stop := context.AfterFunc(g.life, func() { cancel(context.Cause(g.life)) })
	held := &grantContext{Context: ctx, grant: g, cancel: cancel}
	held.Err() // the grant may be over
	return held, func() {
		stop()
		cancel(nil)
	}
}

type grantContext struct {
	context.Context
	grant  *Grant
	cancel context.CancelCauseFunc
}

func (c *grantContext) Err() error {
	if err := c.grant.Err(); err != nil {
		c.cancel(err)
	}
	return c.Context.Err()
}

// Token is a fencing token: a number that is greater than that of every holder before, also across sessions,
// deletions of the path and restarts of the ensemble, though not across a loss of its data. A resource that
// refuses smaller tokens than it has seen is safe from a holder that was paused between its check and its write.
// It is the czxid of the holder's node.
func (g *Grant) Token() int64 { return g.token }

// Check returns an operation that, as the first one of a [zk.Conn] Multi, makes the whole fail with [zk.ErrNoNode]
// once the holder's node is gone: ZooKeeper itself then fences writes to ZooKeeper.
func (g *Grant) Check() *zk.CheckVersionRequest {
	return &zk.CheckVersionRequest{Path: g.node, Version: -1}
}

// Node is the name of the holder's node.
func (g *Grant) Node() string { return path.Base(g.node) }

// lose ends a grant that was not given back.
func (g *Grant) lose(err error) {
	if g.finish(Wrap(g.recipe, g.path, err)) {
		g.client.log.Warn("lost", "recipe", g.recipe, "path", g.path, "token", g.token, "error", err)
		g.client.observe(g.event(Dropped, err))
	}
}

func (g *Grant) event(k EventKind, err error) Event {
	return Event{k, g.recipe, g.path, g.session.ID(), g.token, time.Since(g.since), err}
}

// finish ends the grant, and tells whether it was still held.
func (g *Grant) finish(err error) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.life.Err() != nil {
		return false
	}
	g.end(err)
	g.guard.Stop()
	g.session.dismiss(g)
	return true
}

// Release gives a grant back. It blocks until the node is deleted, ctx ends or the session is over. The grant ends at
// once, and the node is deleted in any case. If ctx ends first, Release returns ctx's error. If the client's back-off
// ends first, or the server refuses to delete the node, it returns that error. The client then goes on in the
// background until the node is gone or the session is over.
//
// It returns an error that wraps [ErrLost] if the grant was lost before, or if the session ended before the
// deletion was confirmed. A further call waits for the same deletion and returns the same. Release is what the
// recipes' own verbs are made of; it is safe for concurrent use.
func Release(ctx context.Context, g *Grant) error {
	if g.Err() == nil && g.finish(Wrap(g.recipe, g.path, ErrReleased)) {
		g.client.observe(g.event(Held, nil))
		if !g.client.spawn(g.dispose) {
			g.dispose() // the client was closed, and so the session is over
		}
	}
	if err := g.Err(); errors.Is(err, ErrLost) {
		return err
	}
	done := ctx.Done()
	for {
		select {
		case <-g.removed:
			return Wrap(g.recipe, g.path, g.outcome)
		case <-g.removal.gaveUp:
			return Wrap(g.recipe, g.path, g.removal.err)
		case <-done:
			if context.Cause(ctx) == g.Err() { // a context of g's own, which this very call has ended
				done = nil
				continue
			}
			return Wrap(g.recipe, g.path, g.removal.contextError(ctx))
		}
	}
}

// dispose deletes the node of a grant that was given back.
func (g *Grant) dispose() {
	defer close(g.removed)
	g.outcome = g.remove(g.removal)
	if errors.Is(g.outcome, zk.ErrNoNode) {
		g.outcome = fmt.Errorf("%w: node %s was deleted", ErrLost, g.Node())
	}
}

// Scope calls fn with a context that is cancelled when g is lost, waits for it to return, and gives g back, also if
// fn panics and whatever has become of ctx. It returns fn's error, joined with the loss if there was one.
func Scope(ctx context.Context, g *Grant, fn func(context.Context) error) (err error) {
	held, cancel := g.Context(ctx)
	defer func() {
		cancel()
		// It ends with the session at the latest.
		err = errors.Join(err, Release(context.WithoutCancel(ctx), g))
	}()
	return fn(held)
}
