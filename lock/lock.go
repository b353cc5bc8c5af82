package lock

import (
	"context"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol/line"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// ErrLocked is returned by TryLock and TryDo when another contender holds the lock or waits for it
// (in whichever process, this one included).
var ErrLocked = line.NewBusy("locked")

// A Lease is a lock that is held until it is given back with [Lease.Unlock] or lost. It is lost
// with its session, or when another client deletes its node. It is safe for concurrent use.
type Lease struct {
	grant *recipe.Grant
	mutex *Mutex

	listens sync.Once
	revoked chan struct{} // made when Revoked is called
}

// Done returns a channel that is closed when the lease is lost or given back. [Lease.Err] says
// which, and can report a loss before Done is closed. Like all methods, it is safe for concurrent
// use.
func (l *Lease) Done() <-chan struct{} { return l.grant.Done() }

// Err returns nil while the lease is held. After a loss its error wraps [protocol.ErrLost] and the
// cause. After [Lease.Unlock] its error wraps [protocol.ErrReleased]. Err computes the answer from
// the clocks at each call, without I/O: in a process that was paused it reports the loss at once.
func (l *Lease) Err() error { return l.grant.Err() }

// Context returns a copy of parent that is also cancelled when the lease is lost or given back,
// with [Lease.Err] as its cause. Its own Err is computed from the clocks at each call. A context
// derived from it is cancelled when the loss is noticed. Call the cancel function when the work is
// done.
func (l *Lease) Context(parent context.Context) (context.Context, context.CancelFunc) {
	return l.grant.Context(parent)
}

// Token returns the fencing token, which is greater than every earlier holder's. That holds across
// sessions, deletions of the path and restarts of the ensemble (unless the ensemble loses its
// data). Leases of one Mutex [WithLinger] may share a token.
//
// A store that refuses tokens smaller than the greatest it has seen is safe from a holder that was
// paused between check and write. The token is the czxid of the node.
func (l *Lease) Token() int64 { return l.grant.Token() }

// Check returns an operation to put first into a [zk.Conn] Multi. The whole Multi then fails with
// [zk.ErrNoNode] once the lease's node is gone, which may stay after Unlock: see [WithLinger]. The
// path in it is absolute.
func (l *Lease) Check() *zk.CheckVersionRequest { return l.grant.Check() }

// Multi is the fenced write: it does all of the operations if the lease is still held, or none.
// Operations are pointers to [zk.CreateRequest], [zk.SetDataRequest], [zk.DeleteRequest] and
// [zk.CheckVersionRequest]. Their paths are below the client's chroot. A create without an ACL gets
// the client's ACL. Multi adds [Lease.Check] itself and returns the answers for ops.
//
// Multi blocks until the server has answered, ctx ends or the session ends. If the connection
// breaks, Multi finds out whether the operations were done and does nothing twice. If the lease has
// ended, Multi does nothing and returns the error of [Lease.Err] (which wraps [protocol.ErrLost]
// after a loss). If the server refuses an operation, nothing was done and the error says which
// operation. If ctx or the session ends before the outcome is known, the error wraps
// [protocol.ErrUncertain]: read the nodes, or repeat operations that carry versions. Bad operations
// get [zk.ErrBadArguments], [zk.ErrInvalidPath] or [protocol.ErrTooLarge] before any I/O. It is
// safe for concurrent use.
//
// Multi is one request. To know its own transactions again, it keeps an ephemeral node named
// receipt-… beside the lease's node until the lease ends. It wakes no waiter. See
// [recipe.Grant.Multi] for the costs.
func (l *Lease) Multi(ctx context.Context, ops ...any) ([]zk.MultiResponse, error) {
	l.mutex.linger.receipts.Add(1)
	defer l.mutex.linger.receipts.Add(1)
	return l.grant.Multi(ctx, ops...)
}

// Node returns the name of the lease's node below the path.
func (l *Lease) Node() string { return l.grant.Node() }

// Unlock gives the lock back. It blocks until the lock's node is deleted, ctx ends or the session
// ends. The lease ends at once, and the node is deleted in any case. If ctx ends first, Unlock
// returns ctx's error and the client completes the deletion in the background. The node of a lock
// [WithLinger] may stay for the next caller. Then Unlock waits for nothing.
//
// Unlock returns an error that wraps [protocol.ErrLost] if the lease was lost before, or if the
// session ended before the deletion was confirmed. Either way the lease is no longer held. Unlock
// can be called again and concurrently: each call waits for the same deletion.
func (l *Lease) Unlock(ctx context.Context) error { return l.grant.Release(ctx) }

// A Contender is one node in line for a lock, the holder's or a waiter's.
type Contender = line.Contender
