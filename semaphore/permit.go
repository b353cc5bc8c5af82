package semaphore

import (
	"context"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// A Permit is held until it is given back with [Permit.Release] or lost: with its session, or when
// another client deletes its node. It is safe for concurrent use.
type Permit struct{ grant *recipe.Grant }

// Done returns a channel that is closed when the permit is lost or given back. [Permit.Err] reports
// which, and may report a loss before Done is closed.
func (p *Permit) Done() <-chan struct{} { return p.grant.Done() }

// Err returns nil while the permit is held. After a loss its error wraps [protocol.ErrLost] and the
// cause. After [Permit.Release] its error wraps [protocol.ErrReleased]. Err computes the answer
// from the clocks at each call, without I/O: in a process that was paused it reports the loss at
// once.
func (p *Permit) Err() error { return p.grant.Err() }

// Context returns a copy of parent that is also cancelled when the permit is lost or given back,
// with [Permit.Err] as its cause. Call the cancel function when the work is done.
func (p *Permit) Context(parent context.Context) (context.Context, context.CancelFunc) {
	return p.grant.Context(parent)
}

// Token returns the fencing token, the czxid of the permit's node. It orders holders by arrival. As
// several hold at a time, a resource cannot refuse a holder for its smaller token alone.
func (p *Permit) Token() int64 { return p.grant.Token() }

// Check returns an operation to put first into a [zk.Conn] Multi. The whole Multi then fails with
// [zk.ErrNoNode] once the permit's node is gone. The path in it is absolute.
func (p *Permit) Check() *zk.CheckVersionRequest { return p.grant.Check() }

// Multi does all of the operations of a [zk.Conn] Multi if the permit is still held, or none. It
// behaves as [lock.Lease.Multi] does and returns the same errors.
//
// [lock.Lease.Multi]: https://pkg.go.dev/github.com/zkrecipes/zkrecipes/lock#Lease.Multi
func (p *Permit) Multi(ctx context.Context, ops ...any) ([]zk.MultiResponse, error) {
	return p.grant.Multi(ctx, ops...)
}

// Node returns the name of the permit's node below the path.
func (p *Permit) Node() string { return p.grant.Node() }

// Release gives the permit back. It blocks until the node is deleted, ctx ends or the session is
// over. The permit ends at once, and the node is deleted in any case. If ctx ends first, Release
// returns ctx's error and the client completes the deletion in the background.
//
// Release returns an error that wraps [protocol.ErrLost] if the permit was lost before, or if the
// session ended before the deletion was confirmed. It may be called again, and concurrently.
func (p *Permit) Release(ctx context.Context) error { return p.grant.Release(ctx) }
