package recipe

import (
	"context"
	"errors"
	"path"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/pace"
	"github.com/zkrecipes/zkrecipes/internal/session"
)

// A Grant is a hold: of a lock, of a leader's term, of a claim. It stands for one node of one
// session. It ends for good when that session can't be trusted any more or the node is gone. It is
// safe for concurrent use.
type Grant struct {
	recipe  *Recipe
	session *Session
	node    string // absolute
	token   int64
	named   bool // the node's name can be used again: only the token tells the nodes apart
	since   time.Time
	remove  *func(context.Context, *Session) error // deletes the node; mu protects it until life is done

	life    context.Context // done when the grant has ended; its cause says why
	end     context.CancelCauseFunc
	removal *removal // the removal of the node after a release; set before life is done

	mu        sync.Mutex    // protects the fields below
	guard     *time.Timer   // nil once it has fired
	replacing chan struct{} // closed when the end function of Replacing is called; otherwise nil
	receipts  receipts
}

// A removal deletes the node of a grant that was given back.
type removal struct {
	*session.Work
	done    chan struct{} // closed when the node is gone, or the session has ended
	outcome error         // valid once done is closed
}

// NewGrant makes a grant of the node at path, an ephemeral node of s. token is the Czxid in the
// node's Stat, and the path has no chroot. [Grant.Release] calls remove with a context and a
// session as [Detach] does. remove should delete the node.
//
// If NewGrant fails, the node stays and the caller must delete it (with [Own.Withdraw] for
// example).
//
// NewGrant blocks only if s must be confirmed first because the ensemble's leader has not answered
// lately. It returns ctx's error, or an error that wraps [protocol.ErrLost] or
// [protocol.ErrClosed].
func (r *Recipe) NewGrant(ctx context.Context, s *Session, path string, token int64,
	remove func(context.Context, *Session) error) (*Grant, error) {
	return r.grant(ctx, s, path, token, false, remove)
}

// NewNamedGrant is [Recipe.NewGrant] for a node whose name another contender can use once the node
// is gone. The grant is lost if the name belongs to another node, which only the token shows. It is
// also lost if s can't read the node's Stat any more. Only remove deletes the node, and after a
// lost reply it must not delete another node. Such a grant can't be replaced. [Grant.Check] and
// [Grant.Multi] only see the name: until the loss is noticed, they take the other node for it.
func (r *Recipe) NewNamedGrant(ctx context.Context, s *Session, path string, token int64,
	remove func(context.Context, *Session) error) (*Grant, error) {
	return r.grant(ctx, s, path, token, true, remove)
}

func (r *Recipe) grant(ctx context.Context, s *Session, path string, token int64, named bool,
	remove func(context.Context, *Session) error) (*Grant, error) {
	g := &Grant{
		recipe: r, session: s.plain(),
		node: s.Path(path), token: token, named: named,
		remove: &remove,
	}
	g.life, g.end = context.WithCancelCause(r.values(ctx))

	var pauses pace.Pauses
	for first := true; ; first = false {
		err := g.begin()
		if err == nil {
			return g, nil
		}
		if !errors.Is(err, session.ErrStale) {
			return nil, err
		}

		// A quorum's answer renews trust, perhaps only after a while. Usually one answer is enough.
		if !first {
			if err := s.bound.Pause(ctx, s.Done(), pauses.Default(session.DefaultBackOff), session.ErrStale); err != nil {
				return nil, err
			}
		}
		if _, err := s.Confirm(ctx); err != nil {
			return nil, err
		}
	}
}

// begin makes the session hold the grant. It returns [session.ErrStale] if the session must be
// confirmed first.
func (g *Grant) begin() error {
	// The session can lose the grant as soon as it is admitted.
	g.mu.Lock()
	defer g.mu.Unlock()
	g.since = time.Now()
	g.session.bound.Engage()
	if err := g.session.bound.Admit((*holder)(g)); err != nil {
		g.session.bound.Disengage()
		return err
	}
	g.guard = time.AfterFunc(guardAfter, g.beginWatch)
	return nil
}

// owns reports whether a node with the name of the grant's node is that node.
func (g *Grant) owns(stat *zk.Stat) bool { return !g.named || stat.Czxid == g.token }

// Done returns a channel that is closed when the grant is lost or given back. [Grant.Err] says
// which and can report a loss before Done is closed.
func (g *Grant) Done() <-chan struct{} { return g.life.Done() }

// Token returns the fencing token that [Recipe.NewGrant] got, the czxid of the node. It is greater
// than the czxid of every node created before: across sessions, deletions of the path and restarts
// of the ensemble (unless the ensemble loses its data). A holder can be paused between its check
// and its write. A resource that refuses tokens smaller than the largest it has seen is safe from
// that. (A grant that replaces another has the other's token: see [Grant.Replacing].)
func (g *Grant) Token() int64 { return g.token }

// Check returns an operation to put first into a Multi of [zk.Conn] or of this package. Once the
// grant's node is gone, the whole Multi fails with [zk.ErrNoNode]. The path in it is absolute
// (unlike the paths of [Session.Multi]).
func (g *Grant) Check() *zk.CheckVersionRequest {
	return &zk.CheckVersionRequest{Path: g.node, Version: -1}
}

// Node returns the name of the grant's node.
func (g *Grant) Node() string { return path.Base(g.node) }

// AfterFunc calls f in its own goroutine once the grant is lost or given back unless stop is
// called before. See [context.AfterFunc].
func (g *Grant) AfterFunc(f func()) (stop func() bool) { return context.AfterFunc(g.life, f) }

// Session returns the session that the grant's node belongs to.
func (g *Grant) Session() *Session { return g.session }
