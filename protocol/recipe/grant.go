package recipe

import (
	"context"
	"path"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/zkrecipes/zkrecipes/internal/session"
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
	remove  func(context.Context, *Session) error // deletes the node

	life    context.Context // done when the grant is over; its cause is why
	end     context.CancelCauseFunc
	removal *removal // of the node of a grant that was given back; set before life is done

	mu        sync.Mutex    // protects what follows
	guard     *time.Timer   // nil once it has fired
	replacing chan struct{} // not nil while Replace is at work; closed when it is done
	receipts  receipts      // of Multi
}

// A removal deletes the node of a grant that was given back.
type removal struct {
	*session.Work
	removed func()
	ctx     context.Context
	done    chan struct{} // closed when the node is gone
	outcome error         // valid once done is closed
}

// owns reports whether a node that has the name of the grant's node is that node.
func (g *Grant) owns(stat *zk.Stat) bool { return !g.named || stat.Czxid == g.token }

// Done returns a channel that is closed when the grant is lost or given back. [Grant.Err] reports
// which of the two, and may report a loss before Done is closed.
func (g *Grant) Done() <-chan struct{} { return g.life.Done() }

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

// AfterFunc calls f in a goroutine of its own once the grant is lost or given back, unless stop is
// called before. See [context.AfterFunc].
func (g *Grant) AfterFunc(f func()) (stop func() bool) { return context.AfterFunc(g.life, f) }

// Session returns the session that the grant's node belongs to.
func (g *Grant) Session() *Session { return g.session }

// A receipt is a node that each of a grant's transactions changes, one after the other.
type receipt struct {
	path    string // absolute
	version int32  // -1: it is not created yet
}

// receipts are the receipts of a grant that no call uses.
type receipts struct {
	free  []*receipt
	spent []*receipt // of transactions whose outcome is not known
}
