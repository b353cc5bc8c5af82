package recipe

import (
	"context"
	"errors"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/zkrecipes/zkrecipes/internal/session"
)

// NewGrant makes the node at path, an ephemeral one of s that was created by the transaction with
// the number token, something that is held. The path has no chroot, and token is the Czxid in the
// node's Stat. [Grant.Release] calls remove, which should delete the node, with a context and a session
// as [Detach] does.
//
// If NewGrant fails, the node stays: the caller deletes it, with [Own.Withdraw] for example.
//
// NewGrant blocks only if s has to be confirmed first, because nothing was heard from the
// ensemble's leader lately. It returns ctx's error or one that wraps [protocol.ErrLost] or
// [protocol.ErrClosed].
func (r *Recipe) NewGrant(ctx context.Context, s *Session, path string, token int64,
	remove func(context.Context, *Session) error) (*Grant, error) {
	return r.grant(ctx, s, path, token, false, remove)
}

// NewNamedGrant is [Recipe.NewGrant] for a node whose name another contender may use once the node
// is gone. The grant is lost if the name is that of another node, which only token tells apart. It
// is also lost if s may not read the node's Stat any more. Nothing but remove deletes a node, and
// remove must not delete another one after a lost reply. Such a grant cannot be replaced.
func (r *Recipe) NewNamedGrant(ctx context.Context, s *Session, path string, token int64,
	remove func(context.Context, *Session) error) (*Grant, error) {
	return r.grant(ctx, s, path, token, true, remove)
}

func (r *Recipe) grant(ctx context.Context, s *Session, path string, token int64, named bool,
	remove func(context.Context, *Session) error) (*Grant, error) {
	s.bound.Engage()
	var pause backoff.BackOff
	for {
		g, err := newGrant(ctx, r, s, s.Path(path), token, named, remove)
		if errors.Is(err, session.ErrStale) {
			if _, err = s.Confirm(ctx); err == nil && pause == nil {
				pause = session.DefaultBackOff() // as a rule the answer is enough
				continue
			} else if err == nil {
				err = s.bound.Pause(ctx, s.Done(), pause.NextBackOff(), session.ErrStale)
			}
			if err == nil {
				continue
			}
		}
		if err != nil {
			s.bound.Disengage()
		}
		return g, err
	}
}

// newGrant makes a node of ours something that is held. It fails with errStale if the session
// cannot be trusted now.
func newGrant(ctx context.Context, r *Recipe, s *Session, node string, token int64, named bool,
	remove func(context.Context, *Session) error) (*Grant, error) {
	g := &Grant{
		recipe: r, session: s.plain(),
		node: node, token: token, named: named,
		since:  time.Now(),
		remove: remove,
	}
	g.life, g.end = context.WithCancelCause(r.values(ctx))

	g.mu.Lock()
	defer g.mu.Unlock()
	if err := s.bound.Admit((*holder)(g)); err != nil {
		return nil, err
	}
	g.guard = time.AfterFunc(guardAfter, g.beginWatch)
	return g, nil
}
