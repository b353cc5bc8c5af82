package rwlock

import (
	"context"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol/line"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// ErrLocked is returned by TryLock and TryRLock when they would have to wait.
var ErrLocked = line.NewBusy("locked")

// A Lease is a lock that is held to read or to write. It is held until it is lost or given back
// with [Lease.Unlock]. It is lost with its session, or when another client deletes its node. It is
// safe for concurrent use.
type Lease struct {
	grant     *recipe.Grant
	mutex     *RWMutex
	exclusive bool

	downgrading chan struct{} // holds a value while Downgrade is at work; nil for a reader
}

func newLease(g *recipe.Grant, m *RWMutex, exclusive bool) *Lease {
	l := &Lease{grant: g, mutex: m, exclusive: exclusive}
	if exclusive {
		l.downgrading = make(chan struct{}, 1)
	}
	return l
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

// Token returns the fencing token, which is greater than every earlier writer's. That holds across
// sessions, deletions of the path and restarts of the ensemble (unless the ensemble loses its
// data). A downgraded lease keeps its token.
//
// A store that refuses tokens smaller than the greatest it has seen is safe from a holder that was
// paused between check and write. The token is the czxid of the node.
func (l *Lease) Token() int64 { return l.grant.Token() }

// Check returns an operation to put first into a [zk.Conn] Multi. The whole Multi then fails with
// [zk.ErrNoNode] once the lease's node is gone. The path in it is absolute.
func (l *Lease) Check() *zk.CheckVersionRequest { return l.grant.Check() }

// Multi does all of the operations if the lease is still held, or none: it is the fenced write to
// ZooKeeper. It behaves as [lock.Lease.Multi] does and returns the same errors.
//
// [lock.Lease.Multi]: https://pkg.go.dev/github.com/zkrecipes/zkrecipes/lock#Lease.Multi
func (l *Lease) Multi(ctx context.Context, ops ...any) ([]zk.MultiResponse, error) {
	return l.grant.Multi(ctx, ops...)
}

// Node returns the name of the lease's node below the path.
func (l *Lease) Node() string { return l.grant.Node() }

// Exclusive reports whether the lease is a write lease. The answer never changes.
func (l *Lease) Exclusive() bool { return l.exclusive }

// Unlock gives the lock back. It blocks until the lock's node is deleted, ctx ends or the session
// ends. The lease ends at once, and the node is deleted in any case. If ctx ends first, Unlock
// returns ctx's error and the client completes the deletion in the background.
//
// Unlock returns an error that wraps [protocol.ErrLost] if the lease was lost before, or if the
// session ended before the deletion was confirmed. Either way the lease is no longer held. Unlock
// can be called again and concurrently: each call waits for the same deletion. After
// [Lease.Downgrade] it does nothing and returns nil, and the new lease must be unlocked. During
// Downgrade it gives everything back.
func (l *Lease) Unlock(ctx context.Context) error { return l.grant.Release(ctx) }

// A Contender is one node in line for a lock, a holder's or a waiter's. The token of a downgraded
// lease is smaller than its node's.
type Contender struct {
	line.Contender
	Exclusive bool // a writer
}
