package recipe

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/session"
	"github.com/zkrecipes/zkrecipes/protocol"
)

// Err returns nil while the grant is held. After a loss its error wraps [protocol.ErrLost], and the
// cause as described there. After [Grant.Release] it wraps [protocol.ErrReleased]. Err computes the
// answer from the clocks at each call, without I/O: in a process that was paused it reports the
// loss at once.
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

// lose ends a grant that was not given back.
func (g *Grant) lose(err error) { g.session.bound.Lose(err, (*holder)(g)) }

// A holder is a Grant as its session knows it, see [session.Holder].
type holder Grant

func (h *holder) Lose(err error) *slog.Logger {
	g := (*Grant)(h)
	if !g.finish(g.recipe.Wrap(err), nil) {
		return nil
	}
	g.report(g.life, protocol.EventLost, err)
	if g.recipe.whole != nil { // its users know nothing of it
		return nil
	}
	return g.recipe.access.View.Log
}

func (h *holder) Held() session.Held {
	r := h.recipe
	return session.Held{Recipe: r.kind.Value().name, Path: r.path, Token: h.token, Since: h.since, Over: h.life.Err() != nil}
}

// report reports that the grant has ended. The life of the grant has the values of the context that
// it was acquired with.
func (g *Grant) report(ctx context.Context, k protocol.EventKind, err error) {
	g.recipe.Report(protocol.Event{
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
	if errors.Is(err, protocol.ErrReleased) {
		values := g.recipe.values(caller)
		removed := sync.OnceFunc(g.session.bound.Removed)
		w := session.NewWork(values, removed)
		g.removal = &removal{w, removed, g.session.detached(values, w), make(chan struct{}), nil}
	}
	g.end(err)
	if g.guard != nil {
		g.guard.Stop()
	}
	g.session.bound.Dismiss((*holder)(g), g.removal != nil)
	g.dropReceipts()
	return true
}

// close notes that the node is gone, or that the session is over.
func (r *removal) close() {
	r.removed()
	close(r.done)
}

// dropReceipts deletes the receipts in the background, after the grant's node. The caller holds mu.
func (g *Grant) dropReceipts() {
	all, s, removal := slices.Concat(g.receipts.free, g.receipts.spent), g.session.Background(), g.removal
	if g.receipts = (receipts{}); len(all) == 0 {
		return
	}
	g.session.bound.Spawn(func() {
		if removal != nil {
			select {
			case <-removal.done:
			case <-s.Done():
			}
		}
		// A create that is on its way comes before this, or is refused: the session has moved.
		for _, r := range all {
			s.remove(s.bound.Life, r.path)
		}
	})
}
