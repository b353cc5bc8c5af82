package recipe

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/zkrecipes/zkrecipes/internal/session"
	"github.com/zkrecipes/zkrecipes/protocol"
)

// Release gives a grant back. It blocks until the node is deleted, ctx ends or the session is over.
// The grant ends at once, and the node is deleted in any case. If ctx ends first, Release returns
// ctx's error. If the view's back-off ends first, or the server refuses to delete the node, it
// returns that error. The deletion then goes on in the background until the node is gone or the
// session is over.
//
// Release returns an error that wraps [protocol.ErrLost] if the grant was lost before, or if the
// session ended before the deletion was confirmed. A further call waits for the same deletion and
// returns the same. The recipes' own verbs are made of it. It is safe for concurrent use.
func (g *Grant) Release(ctx context.Context) error {
	if ctx == nil {
		return g.recipe.Wrap(session.ErrNilContext)
	}
	if g.Err() == nil && g.finish(g.recipe.Wrap(protocol.ErrReleased), ctx) {
		g.report(ctx, protocol.EventReleased, nil)
		if !g.session.bound.Spawn(g.dispose) {
			g.dispose() // the client was closed, and so the session is over
		}
	}
	if err := g.Err(); errors.Is(err, protocol.ErrLost) {
		return err
	}

	r, done := g.removal, ctx.Done()
	if g.session.bound.Conn.Lasts(ctx) {
		done = nil // it ends with the session, and so does the removal
	}
	if done != nil && ctx.Err() != nil && context.Cause(ctx) != g.Err() {
		return g.recipe.Wrap(r.ContextError(ctx)) // however soon the node goes
	}
	for {
		select {
		case <-r.done:
			return g.recipe.Wrap(r.outcome)
		case <-r.GaveUp:
			return g.recipe.Wrap(r.Err)
		case <-done:
			if context.Cause(ctx) == g.Err() { // a context of g's own, which this very call has ended
				done = nil
				continue
			}
			return g.recipe.Wrap(r.ContextError(ctx))
		}
	}
}

// ReleaseWith is [Grant.Release] with another way to delete the node. The grant has ended when remove
// is called, so remove must see to it that the node goes, whatever is refused: [Session.DeleteWith]
// does. If the grant was given back in the usual way before, begun is false and the error is that of
// [Grant.Err]. While [Grant.Replace] is at work, ReleaseWith gives g back in the usual way, which
// knows of both nodes.
func (g *Grant) ReleaseWith(ctx context.Context, remove func(context.Context, *Session) error) (begun bool, err error) {
	var used atomic.Bool
	g.mu.Lock()
	if g.life.Err() == nil && g.replacing == nil {
		g.remove = func(ctx context.Context, s *Session) error {
			used.Store(true)
			return remove(ctx, s)
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
	defer r.close()
	r.outcome = g.remove(r.ctx, g.session.in(r.Work))
	if errors.Is(r.outcome, zk.ErrNoNode) {
		r.outcome = fmt.Errorf("%w: %w: %s", protocol.ErrLost, protocol.ErrNodeDeleted, g.Node())
	}
}

// releaseTimeout is how long RunHeld waits for the end of a release after ctx has ended. Package once
// waits as long to record a run before that.
const releaseTimeout = time.Second

// RunHeld calls fn with a context that is cancelled when g is lost, waits for fn to return, and
// gives g back, also if fn panics or ctx has ended. It returns fn's error, joined with the loss if
// that came before fn returned, and with the server's error if it refuses to delete the node.
//
// Once ctx has ended, RunHeld waits for the deletion for a second at most. It then goes on in the
// background.
func RunHeld(ctx context.Context, g *Grant, fn func(context.Context) error) (err error) {
	held, cancel := g.Context(ctx)
	defer func() {
		over := g.Err()
		cancel()
		if !errors.Is(over, protocol.ErrLost) {
			over = g.releaseWithin(ctx)
		}
		if over != nil {
			err = errors.Join(err, over)
		}
	}()
	return fn(held)
}

// releaseWithin gives g back. It returns the error of a server that refuses to delete the node. Other
// errors say nothing of the work that was done under g.
func (g *Grant) releaseWithin(ctx context.Context) error {
	wait, stop := Linger(ctx, releaseTimeout)
	defer stop()
	err := g.Release(wait)
	if wait.Err() != nil || errors.Is(err, protocol.ErrLost) {
		return nil
	}
	return err
}
