package doublebarrier

import (
	"context"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// An Entry is a place inside, until it is given back with [Entry.Leave] or lost. It is lost with
// its session, or when another client deletes its node. It is safe for concurrent use.
type Entry struct {
	grant    *recipe.Grant
	session  *recipe.Session
	gate     *gate
	over     bool // the member has closed the gate; valid once the grant was released
	orphaned bool // the opener has died, perhaps, and no member can close the gate; as over
}

// Done returns a channel that is closed when the entry is lost or given back. [Entry.Err] says
// which, and can report a loss before Done is closed. Like all methods, it is safe for concurrent
// use.
func (e *Entry) Done() <-chan struct{} { return e.grant.Done() }

// Err returns nil while the entry is held. After a loss its error wraps [protocol.ErrLost] and the
// cause. After [Entry.Leave] its error wraps [protocol.ErrReleased]. Err computes the answer from
// the clocks at each call, without I/O: in a process that was paused it reports the loss at once.
func (e *Entry) Err() error { return e.grant.Err() }

// Context returns a copy of parent that is also cancelled when the entry is lost or given back,
// with [Entry.Err] as its cause. Its own Err is computed from the clocks at each call. A context
// derived from it is cancelled when the loss is noticed. Call the cancel function when the work is
// done.
func (e *Entry) Context(parent context.Context) (context.Context, context.CancelFunc) {
	return e.grant.Context(parent)
}

// Token returns the fencing token, which is the same for all members of a round and greater than
// the tokens of all earlier rounds. It is the number of the transaction that opened the gate.
func (e *Entry) Token() int64 { return e.grant.Token() }

// Round returns the number of the round: 1 for the first at the path, 2 for the second. It is the
// same for all members of a round. So a program with a phase in each round asks Round which phase
// it has joined.
//
// The number is in the node above the members, which lasts as long as any member is there. After
// that the server removes the node when it next looks for empty containers (once a minute by
// default), and rounds begin with 1 again. [WithKeptRounds] keeps the number. Rounds also begin
// with 1 again if another client deletes that node or replaces its data, but [Entry.Token] still
// grows. So if a job runs again, its rounds can begin with 1 or go on: give each run a path of its
// own.
func (e *Entry) Round() int64 { return e.gate.round }

// Check returns an operation to put first into a [zk.Conn] Multi. The whole Multi then fails with
// [zk.ErrNoNode] once the member's node is gone. The path in it is absolute.
func (e *Entry) Check() *zk.CheckVersionRequest { return e.grant.Check() }

// Multi does all of the operations if the entry is still held, or none: it is the fenced write to
// ZooKeeper. It behaves as [lock.Lease.Multi] does and returns the same errors.
//
// [lock.Lease.Multi]: https://pkg.go.dev/github.com/zkrecipes/zkrecipes/lock#Lease.Multi
func (e *Entry) Multi(ctx context.Context, ops ...any) ([]zk.MultiResponse, error) {
	return e.grant.Multi(ctx, ops...)
}

// Node returns the member's own name among [Entry.Members].
func (e *Entry) Node() string { return e.grant.Node() }

// Members returns the names of the n nodes that crossed together, in order of arrival. They are the
// same for each member of the round, even after some have left or died.
func (e *Entry) Members() []string { return slices.Clone(e.gate.members) }

// Leave gives the place back and waits until all other members of the round have left or died. It
// also ends with ctx and with the client. The entry ends at once. Its node is deleted in any case:
// if ctx ends first, Leave returns an error that wraps ctx's error and the client completes the
// deletion in the background. Don't give it a ctx from [Entry.Context], which ends with the entry.
//
// Leave returns an error that wraps [protocol.ErrLost] if the entry was lost before, or if the
// session ended before the deletion was confirmed. Once the deletion is confirmed, Leave also waits
// across sessions. Other errors wrap [protocol.ErrClosed] or are the server's own (for example
// [zk.ErrNoAuth]). Leave can be called again and concurrently: each call waits for the same end.
//
// The last member to leave closes the gate. That wakes the others, and it cannot hit a later gate.
// The last member may have died, so after a third of a session timeout each waiter also watches a
// member that has not left.
//
// [zk.ErrNoAuth]: https://pkg.go.dev/github.com/go-zookeeper/zk#ErrNoAuth
func (e *Entry) Leave(ctx context.Context) error {
	if err := e.grant.Release(ctx); err != nil {
		return err
	}
	if e.over {
		return nil
	}

	// The node is gone. Wait for the others, in the next session if this one is lost.
	r, began := e.gate.recipe, time.Now()
	leaves, in := r.Mode("leave"), (*recipe.Session)(nil)
	leaves.Waiting(ctx)
	_, err := recipe.AcrossSessions(ctx, r, func(s *recipe.Session) (struct{}, error) {
		if in = s; s != e.session { // another server may lag behind the round
			if err := s.Sync(ctx, r.Path()); err != nil {
				return struct{}{}, err
			}
		}
		return struct{}{}, e.gate.awaitEnd(ctx, s, e.orphaned)
	})

	err = r.Wrap(err)
	leaves.Waited(ctx, began, in, 0, err)
	return err
}
