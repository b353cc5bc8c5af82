package protocol

import (
	"context"
	"errors"
	"fmt"
	"path"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"
)

// A Grant is something that is held: a lock, a leader's term, a claim. It stands for one node of
// one session, and is over for good as soon as that session cannot be trusted any more or the node
// is gone. It is safe for concurrent use.
type Grant struct {
	recipe  *Recipe
	session *Session
	node    string // absolute
	token   int64
	named   bool // the node's name may be used again: only the token tells it from the next one
	since   time.Time
	remove  func(context.Context) error // deletes the node

	life    context.Context // done when the grant is over; its cause is why
	end     context.CancelCauseFunc
	removal *removal // of the node of a grant that was given back; set before life is done

	mu        sync.Mutex    // protects what follows
	guard     *time.Timer   // nil once it has fired
	replacing chan struct{} // not nil while Replace is at work; closed when it is done
}

// A removal deletes the node of a grant that was given back.
type removal struct {
	*detached
	done    chan struct{} // closed when the node is gone
	outcome error         // valid once done is closed
}

// guardAfter is how long something must be held before its node is watched, which costs a packet.
const guardAfter = 20 * time.Millisecond

// newGrant makes a node of ours something that is held. It fails with errStale if the session
// cannot be trusted now.
func newGrant(ctx context.Context, r *Recipe, s *Session, node string, token int64, named bool,
	remove func(context.Context) error) (*Grant, error) {
	g := &Grant{
		recipe: r, session: s,
		node: node, token: token, named: named,
		since:  time.Now(),
		remove: remove,
	}
	g.life, g.end = context.WithCancelCause(r.values(ctx))

	g.mu.Lock()
	defer g.mu.Unlock()
	if err := s.admit(g); err != nil {
		return nil, err
	}
	g.guard = time.AfterFunc(guardAfter, g.beginWatch)
	return g, nil
}

func (g *Grant) beginWatch() {
	g.mu.Lock()
	g.guard = nil // a timer takes memory
	g.mu.Unlock()
	g.startWatch()
}

// Guard has the grant's node watched from now on, instead of after 20 ms. If the session watches
// the node already, that costs no request. It does not block. It is safe for concurrent use.
func (g *Grant) Guard() {
	g.mu.Lock()
	begins := g.guard != nil && g.guard.Stop()
	if begins {
		g.guard = nil
	}
	g.mu.Unlock()
	if begins {
		g.startWatch()
	}
}

func (g *Grant) client() *Client { return g.recipe.client }

// startWatch starts watch unless the grant is over. It does not block.
func (g *Grant) startWatch() {
	if g.life.Err() == nil {
		g.client().spawn(g.watch)
	}
}

// watch tells the holder when its node is deleted. It returns once the node is watched, so that no
// goroutine waits for each grant. When the node has changed, it is called again.
func (g *Grant) watch() {
	warned := false
	for g.life.Err() == nil {
		w := g.session.watch(g.node)
		stat, err := w.Ready(g.session.life) // not g's, which would then need a channel
		if err == nil && !g.owns(stat) {
			// What all share may be about the node before, read before a reconnect.
			if _, err = w.Recheck(g.session.life); err == nil {
				err = zk.ErrNoNode
			}
		}
		if err == nil {
			w.onChange(g.startWatch)
			return
		}

		// A node that may not be read has no watch. But the server says whether there is one.
		if g.life.Err() == nil && !errors.Is(err, zk.ErrNoNode) {
			if !warned {
				g.client().log.Warn("node of a grant not watched", "node", g.node, "error", err)
				warned = true
			}
			_, err = g.stat(g.life)
		}
		if errors.Is(err, zk.ErrNoNode) {
			g.awaitReplacement()
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

// missing finds out whether the node is gone, which a server that lags may have said too early, and
// ends the grant if so. The node is deleted all the same: what is believed to be gone must not
// stand in line for the rest of the session. A name that may be another node's by now is left
// alone.
func (g *Grant) missing(ctx context.Context) (gone bool, err error) {
	if err := g.session.sync(ctx, g.node); err != nil {
		return false, err
	}
	switch _, err := g.stat(ctx); {
	case errors.Is(err, zk.ErrNoAuth): // so it is there
		return false, nil
	case !errors.Is(err, zk.ErrNoNode):
		return false, err
	}
	g.lose(fmt.Errorf("%w: %w: %s", ErrLost, ErrNodeDeleted, g.Node()))
	if !g.named {
		g.client().spawn(func() { g.session.remove(g.session.life, g.node) })
	}
	return true, nil
}

// stat returns the Stat of the grant's node, or [zk.ErrNoNode] if that is gone. It returns
// [zk.ErrNoAuth] if the node is there, may not be read, and the server hides its Stat, too.
func (g *Grant) stat(ctx context.Context) (*zk.Stat, error) {
	stat, err := g.session.exists(ctx, g.node)
	switch {
	case errors.Is(err, zk.ErrNoAuth) && g.named:
		// The Stat of the grant's own node could be read once, so this may be another's node.
		return nil, zk.ErrNoNode
	case err == nil && (stat == nil || !g.owns(stat)):
		return nil, zk.ErrNoNode
	}
	return stat, err
}

// owns reports whether a node that has the name of the grant's node is that node.
func (g *Grant) owns(stat *zk.Stat) bool { return !g.named || stat.Czxid == g.token }

// Done returns a channel that is closed when the grant is lost or given back. [Grant.Err] reports
// which of the two, and may report a loss before Done is closed.
func (g *Grant) Done() <-chan struct{} { return g.life.Done() }

// Err returns nil while the grant is held. After a loss its error wraps [ErrLost], and the cause as
// described there. After [Grant.Release] it wraps [ErrReleased]. Err computes the answer from the
// clocks at each call, without I/O: in a process that was paused it reports the loss at once.
func (g *Grant) Err() error {
	if g.life.Err() == nil {
		// A session that is found to be over here and now ends its grants before it says so.
		if err := g.session.Err(); err != nil {
			g.lose(err)
		}
	}
	return context.Cause(g.life)
}

// Context returns a copy of parent that is also cancelled when the grant is lost or given back,
// with [Grant.Err] as its cause. Its own Err is computed from the clocks at each call. A context
// derived from it is cancelled when the loss is noticed. Call the cancel function when the work is
// done.
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

// Token returns the fencing token that [Recipe.NewGrant] was given, the czxid of the node. It is
// greater than that of every node created before. That holds across sessions, deletions of the path
// and restarts of the ensemble, unless the ensemble loses its data. A resource that refuses tokens
// smaller than the largest it has seen is safe from a holder that was paused between check and
// write. [Grant.Replace] keeps the token.
func (g *Grant) Token() int64 { return g.token }

// Check returns an operation to put first into a Multi of [zk.Conn] or of this package. The whole
// Multi then fails with [zk.ErrNoNode] once the grant's node is gone. The path in it is absolute.
// Those of [Session.Multi] are not.
func (g *Grant) Check() *zk.CheckVersionRequest {
	return &zk.CheckVersionRequest{Path: g.node, Version: -1}
}

// Node returns the name of the grant's node.
func (g *Grant) Node() string { return path.Base(g.node) }

// lose ends a grant that was not given back.
func (g *Grant) lose(err error) {
	if g.finish(g.recipe.Wrap(err), nil) {
		g.logLoss(err)
		g.report(g.life, EventLost, err)
	}
}

func (g *Grant) logLoss(err error) {
	if g.recipe.whole != nil { // its users know nothing of it
		return
	}
	g.client().log.Warn("lost", "recipe", g.recipe.kind.Value().name, "path", g.recipe.path,
		"session", hexID(g.session.ID()), "token", g.token, "error", err)
}

// report reports that the grant has ended. The life of the grant has the values of the context that
// it was acquired with.
func (g *Grant) report(ctx context.Context, k EventKind, err error) {
	g.recipe.Report(Event{
		Kind: k, Context: ctx, Session: g.session.ID(), Token: g.token, Duration: time.Since(g.since), Err: err,
	})
}

// finish ends the grant, and reports whether it was still held. If it is given back, caller is the
// context with which that was asked for.
func (g *Grant) finish(err error, caller context.Context) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.life.Err() != nil {
		return false
	}
	if errors.Is(err, ErrReleased) {
		g.removal = &removal{detach(g.recipe.values(caller), g.session.session), make(chan struct{}), nil}
	}
	g.end(err)
	if g.guard != nil {
		g.guard.Stop()
	}
	g.session.dismiss(g)
	return true
}

// AfterFunc calls f in a goroutine of its own once the grant is lost or given back, unless stop is
// called before. See [context.AfterFunc].
func (g *Grant) AfterFunc(f func()) (stop func() bool) { return context.AfterFunc(g.life, f) }

// Session returns the session that the grant's node belongs to.
func (g *Grant) Session() *Session { return g.session }

// Verify asks the servers whether the grant's node is there, behind a Sync, and ends the grant if
// it is not. It blocks until they have answered, and returns [Grant.Err]. Without an answer it
// returns ctx's error, one that wraps [ErrLost] or [ErrClosed], or the server's own.
func (g *Grant) Verify(ctx context.Context) error {
	if _, err := g.missing(ctx); err != nil {
		return err
	}
	return g.Err()
}

// Release gives a grant back. It blocks until the node is deleted, ctx ends or the session is over.
// The grant ends at once, and the node is deleted in any case. If ctx ends first, Release returns
// ctx's error. If the view's back-off ends first, or the server refuses to delete the node, it
// returns that error. The deletion then goes on in the background until the node is gone or the
// session is over.
//
// Release returns an error that wraps [ErrLost] if the grant was lost before, or if the session
// ended before the deletion was confirmed. A further call waits for the same deletion and returns
// the same. The recipes' own verbs are made of it. It is safe for concurrent use.
func (g *Grant) Release(ctx context.Context) error {
	if ctx == nil {
		return g.recipe.Wrap(errNilContext)
	}
	if g.Err() == nil && g.finish(g.recipe.Wrap(ErrReleased), ctx) {
		g.report(Caller(ctx), EventReleased, nil)
		if !g.client().spawn(g.dispose) {
			g.dispose() // the client was closed, and so the session is over
		}
	}
	if err := g.Err(); errors.Is(err, ErrLost) {
		return err
	}

	r, done := g.removal, ctx.Done()
	if _, work := ctx.(*detached); work {
		done = nil // it ends with the session, and so does the removal
	}
	for {
		select {
		case <-r.done:
			return g.recipe.Wrap(r.outcome)
		case <-r.gaveUp:
			return g.recipe.Wrap(r.err)
		case <-done:
			if context.Cause(ctx) == g.Err() { // a context of g's own, which this very call has ended
				done = nil
				continue
			}
			return g.recipe.Wrap(r.contextError(ctx))
		}
	}
}

// ReleaseWith is [Grant.Release] with another way to delete the node. If the grant was given back
// in the usual way before, begun is false and the error is that of [Grant.Err]. While
// [Grant.Replace] is at work, ReleaseWith gives g back in the usual way, which knows of both nodes.
func (g *Grant) ReleaseWith(ctx context.Context, remove func(context.Context) error) (begun bool, err error) {
	var used atomic.Bool
	g.mu.Lock()
	if g.life.Err() == nil && g.replacing == nil {
		g.remove = func(ctx context.Context) error {
			used.Store(true)
			return remove(ctx)
		}
	}
	g.mu.Unlock()

	err = g.Release(ctx)
	if err == nil && !used.Load() {
		return false, g.Err()
	}
	return used.Load(), err
}

// dispose deletes the node of a grant that was given back.
func (g *Grant) dispose() {
	r := g.removal
	defer close(r.done)
	r.outcome = g.remove(r.detached)
	if errors.Is(r.outcome, zk.ErrNoNode) {
		r.outcome = fmt.Errorf("%w: %w: %s", ErrLost, ErrNodeDeleted, g.Node())
	}
}

// RunHeld calls fn with a context that is cancelled when g is lost, waits for fn to return, and
// gives g back, also if fn panics or ctx has ended. It returns fn's error, joined with the loss if
// there was one.
func RunHeld(ctx context.Context, g *Grant, fn func(context.Context) error) (err error) {
	held, cancel := g.Context(ctx)
	defer func() {
		cancel()
		// It ends with the session at the latest.
		err = errors.Join(err, g.Release(context.WithoutCancel(ctx)))
	}()
	return fn(held)
}
