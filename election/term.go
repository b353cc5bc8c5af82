package election

import (
	"context"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// A Term is a leadership that lasts until it is given back with [Term.Resign] or lost. It is lost
// with its session, or when another client deletes its node. It is safe for concurrent use.
type Term struct {
	grant    *recipe.Grant
	election *Election
}

// Done returns a channel that is closed when the term is lost or given back. [Term.Err] says which,
// and can report a loss before Done is closed. Like all methods, it is safe for concurrent use.
func (t *Term) Done() <-chan struct{} { return t.grant.Done() }

// Err returns nil while the term is held. After a loss its error wraps [protocol.ErrLost] and the
// cause. After [Term.Resign] its error wraps [protocol.ErrReleased]. Err computes the answer from
// the clocks at each call, without I/O: in a process that was paused it reports the loss at once.
func (t *Term) Err() error { return t.grant.Err() }

// Context returns a copy of parent that is also cancelled when the term is lost or given back, with
// [Term.Err] as its cause. Its own Err is computed from the clocks at each call. A context derived
// from it is cancelled when the loss is noticed. Call the cancel function when the work is done.
func (t *Term) Context(parent context.Context) (context.Context, context.CancelFunc) {
	return t.grant.Context(parent)
}

// Token returns the fencing token, which is greater than every earlier leader's. That holds across
// sessions, deletions of the path and restarts of the ensemble (unless the ensemble loses its
// data).
//
// A store that refuses tokens smaller than the greatest it has seen is safe from a leader that was
// paused between check and write. The token is the czxid of the node.
func (t *Term) Token() int64 { return t.grant.Token() }

// Check returns an operation to put first into a [zk.Conn] Multi. The whole Multi then fails with
// [zk.ErrNoNode] once the term's node is gone. The path in it is absolute.
func (t *Term) Check() *zk.CheckVersionRequest { return t.grant.Check() }

// Multi does all of the operations if the term is still held, or none: it is the fenced write to
// ZooKeeper. It behaves as [lock.Lease.Multi] does and returns the same errors.
//
// [lock.Lease.Multi]: https://pkg.go.dev/github.com/zkrecipes/zkrecipes/lock#Lease.Multi
func (t *Term) Multi(ctx context.Context, ops ...any) ([]zk.MultiResponse, error) {
	return t.grant.Multi(ctx, ops...)
}

// Node returns the name of the term's node below the path.
func (t *Term) Node() string { return t.grant.Node() }

// Resign gives the leadership back. It blocks until the candidate's node is deleted, ctx ends or
// the session ends. The term ends at once, and the node is deleted in any case. If ctx ends first,
// Resign returns ctx's error and the client completes the deletion in the background.
//
// Resign returns an error that wraps [protocol.ErrLost] if the term was lost before, or if the
// session ended before the deletion was confirmed. Either way the term is no longer held. Resign
// can be called again and concurrently: each call waits for the same deletion.
func (t *Term) Resign(ctx context.Context) error { return t.grant.Release(ctx) }

// Proclaim changes the leader's value. [Election.Leader], [Election.Observe] and
// [Election.Candidates] show it. It takes effect once: a value that a later Proclaim has replaced
// does not come back. It blocks until the server has answered two requests (four if an answer was
// lost) or ctx ends, and while the session is suspended. Of concurrent calls, one takes effect
// last. The caller must not change the slice before Proclaim returns, or ever if ctx ended first.
//
// If the term ended before, the error wraps [protocol.ErrLost] or [protocol.ErrReleased]. It may
// also wrap [protocol.ErrTooLarge], or be the server's own. If it is [protocol.ErrUncertain] or the
// error of ctx (or of a back-off that has stopped), the value may or may not have changed. A lost
// term's Proclaim changes nothing, however late it arrives: its node is gone and the name is never
// used again.
func (t *Term) Proclaim(ctx context.Context, value []byte) error {
	return t.grant.SetData(ctx, value)
}
