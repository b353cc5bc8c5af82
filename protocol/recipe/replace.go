package recipe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/conn"
	"github.com/zkrecipes/zkrecipes/internal/pace"
	"github.com/zkrecipes/zkrecipes/internal/session"
	"github.com/zkrecipes/zkrecipes/protocol"
)

// Replace makes another node stand for what g stands for. swap creates the node at path, whose name
// must never have been used, and deletes g's node, in one transaction; its context is that of
// [Detach]. The new grant has g's token: it is the same holder. It is one of r, which is g's recipe
// in the same or another [Recipe.Mode].
//
// Replace blocks until swap returns or ctx ends. Then g is over, as if given back, and its Err
// wraps [protocol.ErrReleased]. If swap fails g goes on, with these exceptions. If ctx ends while
// swap is at work, no client can tell at that moment which of the nodes is there: the whole is
// given back, g ends, and both nodes are deleted in the background. The same happens if swap's
// error wraps [protocol.ErrUncertain], and if the view's back-off ends. If swap returns
// [zk.ErrNoNode], g is lost. A ctx that has ended before the call changes nothing.
//
// Other values of g may be used meanwhile. [Grant.Release] wins over a replacement that is under
// way: all is given back, and Replace returns an error that wraps ErrReleased. Of two replacements
// one fails that way too. All errors carry the recipe and the path.
func (g *Grant) Replace(ctx context.Context, r *Recipe, path string,
	swap func(ctx context.Context, s *Session) error) (next *Grant, err error) {
	if ctx == nil {
		return nil, g.recipe.Wrap(session.ErrNilContext)
	}
	began := time.Now()
	r.Waiting(ctx)
	defer func() { r.acquired(ctx, began, next, err) }()

	next, err = g.tryReplace(ctx, r, g.session.Path(path), swap)
	switch over := g.Err(); {
	case err == nil:
		return next, nil
	case errors.Is(over, protocol.ErrLost):
		return nil, over
	}
	return nil, g.recipe.Wrap(err)
}

func (g *Grant) tryReplace(ctx context.Context, r *Recipe, node string, swap func(ctx context.Context, s *Session) error) (*Grant, error) {
	if err := g.beginReplacement(ctx, node); err != nil {
		return nil, err
	}
	next, err := Detach(ctx, g.session.of(ctx), func(ctx context.Context, s *Session) (*Grant, error) {
		next, err := g.replace(ctx, s, r, node, swap)
		if err != nil {
			g.endReplacement()
		}
		return next, err
	}, func(late *Grant) { g.handOver(ctx, late) })
	switch {
	case err == nil:
		next, err = g.handOver(ctx, next)
	case ctx.Err() != nil, errors.Is(err, pace.ErrStopped):
		g.Release(ctx)
	}
	return next, err
}

// replace swaps the nodes and makes a grant of the new one.
func (g *Grant) replace(ctx context.Context, s *Session, r *Recipe, node string, swap func(ctx context.Context, s *Session) error) (*Grant, error) {
	err := swap(ctx, s)
	switch {
	case errors.Is(err, zk.ErrNoNode): // ours, or the one above it
		g.lose(fmt.Errorf("%w: %w: %s", protocol.ErrLost, protocol.ErrNodeDeleted, g.Node()))
		return nil, g.Err()
	case errors.Is(err, protocol.ErrUncertain):
		g.Release(ctx)
		return nil, err
	case err != nil:
		return nil, err
	}

	s.bound.Engage()
	next, err := newGrant(ctx, r, s, node, g.token, false, func(ctx context.Context, s *Session) error { return s.remove(ctx, node) })
	if err != nil {
		s.bound.Disengage()
		// Without trust in the session g is lost; given back, it is deleted with both its nodes.
		return nil, cmp.Or(g.Err(), err)
	}
	return next, nil
}

// handOver ends the old grant in favour of the new one, if the old one is still held and the caller
// still waits for the new one. Otherwise all is given back: releasing the old one deletes both
// nodes. Until then ctx may be one that ends with the old grant.
func (g *Grant) handOver(ctx context.Context, next *Grant) (*Grant, error) {
	defer g.endReplacement()
	released := g.recipe.Wrap(protocol.ErrReleased)
	ended := conn.ContextError(ctx)
	if ended == nil && g.finish(released, ctx) {
		g.report(ctx, protocol.EventReleased, nil)
		g.removal.close()
		return next, nil
	}
	g.Release(ctx)
	if next.finish(released, ctx) {
		next.removal.close()
	}
	return nil, cmp.Or(ended, g.Err())
}

// beginReplacement waits for other replacements of g and begins one. From then on, and for as long
// as g lasts, a release deletes both nodes.
func (g *Grant) beginReplacement(ctx context.Context, node string) error {
	for {
		if ctx.Err() != nil {
			return conn.ContextError(ctx)
		}
		if err := g.Err(); err != nil {
			return err
		}
		g.mu.Lock()
		other, over := g.replacing, g.life.Err() != nil
		if other == nil && !over {
			g.replacing = make(chan struct{})
			g.remove = func(ctx context.Context, s *Session) error { return s.removeEither(ctx, g.node, node) }
			g.mu.Unlock()
			return nil
		}
		g.mu.Unlock()

		if !over {
			select {
			case <-other:
			case <-g.Done():
			case <-ctx.Done():
			}
		}
	}
}

func (g *Grant) endReplacement() {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.replacing)
	g.replacing = nil
}

// removeEither deletes a node and the one that may be about to take its place. Once the first one
// is gone for sure, no transaction that replaces it can succeed any more.
func (s *Session) removeEither(ctx context.Context, node, next string) error {
	first := s.remove(ctx, node)
	if first != nil && !errors.Is(first, zk.ErrNoNode) {
		return first
	}
	second := s.remove(ctx, next)
	if errors.Is(second, zk.ErrNoNode) {
		return first
	}
	return second
}
