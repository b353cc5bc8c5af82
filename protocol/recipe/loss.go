package recipe

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/session"
	"github.com/zkrecipes/zkrecipes/protocol"
)

// Err returns nil while the grant is held. After a loss its error wraps [protocol.ErrLost], and the
// cause that is documented there. After [Grant.Release] it wraps [protocol.ErrReleased]. Err
// computes the answer from the clocks at each call (without I/O), so a process that was paused sees
// the loss at once.
func (g *Grant) Err() error {
	if g.life.Err() == nil {
		// A session that finds here that it has ended ends its grants before it returns.
		if err := g.session.Err(); err != nil {
			g.lose(err)
		}
	}
	return context.Cause(g.life)
}

// Context returns a copy of parent that is also cancelled when the grant is lost or given back,
// with [Grant.Err] as its cause. Its own Err is computed from the clocks at each call. (A context
// derived from it is cancelled when the client notices the loss.) Call the cancel function when the
// work is done.
func (g *Grant) Context(parent context.Context) (context.Context, context.CancelFunc) {
	return HeldContext(parent, g.life, g.Err)
}

// HeldContext returns a copy of parent for a value that is held until life ends. It is also
// cancelled when life ends, with the result of over as its cause. Its own Err calls over each time,
// and cancels it if over returns an error before life ends. Call the cancel function when the work
// is done.
func HeldContext(parent, life context.Context, over func() error) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	stop := context.AfterFunc(life, func() { cancel(over()) })
	held := &heldContext{ctx, over, cancel}
	held.Err() // cancels it if the value has ended
	return held, func() {
		stop()
		cancel(nil)
	}
}

type heldContext struct {
	context.Context
	over   func() error
	cancel context.CancelCauseFunc
}

func (c *heldContext) Err() error {
	if err := c.over(); err != nil {
		c.cancel(err)
	}
	return c.Context.Err()
}

// lose ends a grant that was not given back.
func (g *Grant) lose(err error) { g.session.bound.Lose(err, (*holder)(g)) }

// A holder is a Grant as its session sees it: see [session.Holder].
type holder Grant

func (h *holder) Lose(err error) (log *slog.Logger, held session.Held) {
	g, r := (*Grant)(h), h.recipe
	if !g.finish(r.Wrap(err), nil) {
		return nil, held
	}

	g.report(g.life, protocol.EventLost, err)
	if r.whole == nil { // users don't know about parts
		log = r.access.View.Log
	}

	return log, session.Held{Recipe: r.kind.Value().name, Path: r.path, Token: g.token}
}

// report reports that the grant has ended. (The life of a grant has the values of the context that
// it was acquired with.)
func (g *Grant) report(ctx context.Context, k protocol.EventKind, err error) {
	g.recipe.Report(protocol.Event{
		Kind: k, Context: ctx, Session: g.session.ID(), Token: g.token, Duration: time.Since(g.since), Err: err,
	})
}

// finish ends the grant and reports whether it was still held. caller is the context of a release.
func (g *Grant) finish(err error, caller context.Context) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.life.Err() != nil {
		return false
	}

	// Release reads the removal as soon as life is done.
	if errors.Is(err, protocol.ErrReleased) {
		w := session.NewWork(g.session.bound.Life, g.recipe.values(caller), g.session.bound.Removed)
		g.removal = &removal{Work: w, done: make(chan struct{})}
	}

	g.end(err)
	if g.guard != nil {
		g.guard.Stop()
	}

	g.session.bound.Dismiss((*holder)(g), g.removal != nil)
	g.dropReceipts()
	return true
}

// close notes that the node is gone, or that the session has ended.
func (r *removal) close() {
	r.Release()
	close(r.done)
}
