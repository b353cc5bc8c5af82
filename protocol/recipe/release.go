package recipe

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/session"
	"github.com/zkrecipes/zkrecipes/protocol"
)

// Release gives a grant back. The grant ends at once, and the node is deleted in any case. Release
// blocks until the node is deleted, ctx ends or the session ends. If ctx ends first, Release
// returns ctx's error. If the view's back-off ends first or the server refuses to delete the node,
// it returns that error. The deletion then goes on in the background until the node is gone or the
// session ends.
//
// Release returns an error that wraps [protocol.ErrLost] if the grant was lost before, or if the
// session ended before the deletion was confirmed. Another call waits for the same deletion and
// returns the same. It is safe for concurrent use.
func (g *Grant) Release(ctx context.Context) error {
	if ctx == nil {
		return g.recipe.Wrap(session.ErrNilContext)
	}
	if g.Err() == nil && g.finish(g.recipe.Wrap(protocol.ErrReleased), ctx) {
		g.report(ctx, protocol.EventReleased, nil)
		if !g.session.bound.SpawnWork(g.dispose) {
			g.dispose() // the client was closed, so the session has ended
		}
	}
	if err := g.Err(); errors.Is(err, protocol.ErrLost) {
		return err
	}

	// A context that ends with the session, or because of this very call, doesn't end the wait.
	r, done := g.removal, ctx.Done()
	if g.session.bound.Conn.Lasts(ctx) {
		done = nil
	}
	if done != nil && ctx.Err() != nil && context.Cause(ctx) != g.Err() {
		return g.recipe.Wrap(r.ContextError(ctx)) // however soon the node goes
	}

	for {
		select {
		case <-r.done:
			return g.recipe.Wrap(r.outcome)
		case <-r.GaveUp:
			return g.recipe.Wrap(r.Failure)
		case <-done:
			if context.Cause(ctx) == g.Err() {
				done = nil
				continue
			}

			return g.recipe.Wrap(r.ContextError(ctx))
		}
	}
}

// ReleaseWith is [Grant.Release] with another way to delete the node. The grant has ended when
// remove is called, so remove must delete the node even if the server refuses something else (as
// [Session.DeleteWith] does). begun reports whether remove is what deletes the node (now or, if ctx
// has ended, in the background). If the grant was given back in the usual way before, begun is
// false and the error is the error of [Grant.Err].
func (g *Grant) ReleaseWith(ctx context.Context, remove func(context.Context, *Session) error) (begun bool, err error) {
	g.mu.Lock()
	if g.life.Err() == nil {
		g.remove = &remove
	}
	g.mu.Unlock()

	err = g.Release(ctx)
	over := g.Err()
	g.mu.Lock()
	begun = g.remove == &remove && errors.Is(over, protocol.ErrReleased)
	g.mu.Unlock()
	if err == nil && !begun {
		err = over
	}
	return begun, err
}

// dispose deletes the node of a grant that was given back.
func (g *Grant) dispose() {
	r := g.removal
	defer r.close()
	r.outcome = (*g.remove)(r.Work, g.session.in(r.Work))
	if errors.Is(r.outcome, zk.ErrNoNode) {
		r.outcome = g.nodeDeleted()
	}
}

// nodeDeleted returns the error of a grant whose node was deleted by another client.
func (g *Grant) nodeDeleted() error {
	return fmt.Errorf("%w: %w: %s", protocol.ErrLost, protocol.ErrNodeDeleted, g.Node())
}

// releaseTimeout is how long RunHeld waits for the end of a release after ctx has ended. (Package
// once waits as long to record a run before that.)
const releaseTimeout = time.Second

// RunHeld calls fn with a context that is cancelled when g is lost. It waits until fn returns and
// then gives g back (also if fn panics or ctx has ended). It returns fn's error. If g was lost
// before fn returned, the loss is joined with it. So is the server's error if it refuses to delete
// the node.
//
// Once ctx has ended, RunHeld waits for the deletion for at most a second. The deletion then goes
// on in the background.
func RunHeld(ctx context.Context, g *Grant, fn func(context.Context) error) (err error) {
	held, cancel := g.Context(ctx)
	defer func() {
		// A loss counts only if it came before fn returned.
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

// releaseWithin gives g back. It returns only the error of a server that refuses to delete the
// node because other errors say nothing about fn's work.
func (g *Grant) releaseWithin(ctx context.Context) error {
	wait, stop := Linger(ctx, releaseTimeout)
	defer stop()
	err := g.Release(wait)
	if wait.Err() != nil || errors.Is(err, protocol.ErrLost) {
		return nil
	}
	return err
}
