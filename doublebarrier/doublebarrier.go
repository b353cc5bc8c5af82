package doublebarrier

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
)

const recipe = "doublebarrier"

// ErrFull is returned by [Barrier.Enter] when it comes to a round that is under way, or when n others came first.
var ErrFull = errors.New("barrier is full")

// A Barrier lets n members in together, and out together, round after round. Its members are the calls of
// [Barrier.Enter], of any number of processes; goroutines that share a Barrier count like processes do. It is safe for
// concurrent use.
//
// The algorithm is the double barrier of the ZooKeeper documentation's recipes, with ephemeral members and the node
// "ready" for a gate. What is added is described at [Barrier.Enter] and [Entry.Leave].
type Barrier struct {
	client *protocol.Client
	path   string
	n      int
	waits  bool
}

// An Option shapes a barrier; give it to [New].
type Option func(*Barrier)

// WaitForNextRound has [Barrier.Enter] wait where it would return [ErrFull]: it joins again when the round that is under
// way has ended. Nobody's place is kept meanwhile.
func WaitForNextRound() Option { return func(b *Barrier) { b.waits = true } }

// New returns the double barrier at path for n members. All of them have to agree about n, and may agree about another one
// when no member is left. The path is a node of its own that is created as needed. New does no I/O and cannot fail: a nil
// client, a bad path, an n below one, or one that is too large for a transaction with a member in each of its operations,
// is reported by the first call.
func New(c *protocol.Client, path string, n int, opts ...Option) *Barrier {
	b := &Barrier{client: c, path: path, n: n}
	for _, o := range opts {
		if o != nil {
			o(b)
		}
	}
	return b
}

// Enter joins the barrier and waits until n have. It blocks until then, until ctx ends or the client is closed.
//
// All n of a round are let in by one transaction, which counts each of them, and fails if one is not there any more: so
// either all are in or nobody is. Who comes to a round that is under way, or after n others, gets an error that wraps
// [ErrFull], unless [WaitForNextRound] was asked for; who came first is let in first. A gate that was left by a round
// whose members have all died is removed by whoever comes next.
//
// If ctx ends, Enter withdraws and returns an error that wraps ctx's. That error is a promise: no round has counted, or
// will count, this call. If it was counted already it has entered, and Enter returns the entry and no error, though ctx
// has ended. Enter takes up to 50 ms after the end of ctx to find out. If it is not known by then, the error wraps
// [protocol.ErrUncertain], too: the withdrawal goes on in the background, and if the call turns out to be counted, it
// leaves at once. A process that may have been counted counts as one that has died inside.
//
// If the session is lost while it waits, or its node is deleted by hand, Enter joins again, in the next session if need be.
// If the first in line expects another number of members, Enter withdraws and returns an error that wraps [ErrSize] and
// says both numbers. Members that agree wait on. It blocks for that only until the server has answered, unless two
// that disagree come at the same time. Then the first of them deletes the node of the other, which joins again and sees.
//
// If Enter joins again and finds itself counted by a round that is under way, it returns an error that wraps
// [protocol.ErrLost]: the others know it as a member that has died. If it was counted by a round that has ended since, it
// may not know, and joins the next round under another name.
//
// Other errors wrap [protocol.ErrClosed], [protocol.ErrTooLarge], [protocol.ErrSequenceExhausted],
// [zk.ErrInvalidPath], [zk.ErrNodeExists] if nodes of another library are at the path, or are the server's own, such as
// [zk.ErrNoAuth]. The entry does not depend on ctx. It is lost with its session.
//
// [zk.ErrInvalidPath]: https://pkg.go.dev/github.com/go-zookeeper/zk#ErrInvalidPath
// [zk.ErrNodeExists]: https://pkg.go.dev/github.com/go-zookeeper/zk#ErrNodeExists
// [zk.ErrNoAuth]: https://pkg.go.dev/github.com/go-zookeeper/zk#ErrNoAuth
func (b *Barrier) Enter(ctx context.Context) (*Entry, error) {
	if b.n < 1 {
		return nil, protocol.Wrap(recipe, b.path, fmt.Errorf("%d members, at least one is needed", b.n))
	}
	began := time.Now()
	a := &arrival{barrier: b}
	o, err := protocol.Persist(ctx, b.client, b.path, nil, func(s *protocol.Session) (outcome, error) {
		return a.attempt(ctx, s)
	})
	if err != nil { // between two sessions, when nobody is at work
		o = outcome{err: a.doubted(err)}
	}
	o.err = protocol.Wrap(recipe, b.path, o.err)
	b.client.Waited(recipe, b.path, began, o.err)
	return o.entry, o.err
}

// Do enters, calls fn with a context that is cancelled when the entry is lost (its cause then wraps
// [protocol.ErrLost]), and leaves, also if fn fails. It blocks as [Barrier.Enter] does, then until fn has returned, and
// then as [Entry.Leave] does. If fn panics it gives up its place and does not wait for the others. It returns an error
// of Enter, or fn's, joined with that of Leave.
func (b *Barrier) Do(ctx context.Context, fn func(ctx context.Context) error) (err error) {
	e, err := b.Enter(ctx)
	if err != nil {
		return err
	}
	held, cancel := e.Context(ctx)
	returned := false
	defer func() {
		cancel()
		if !returned {
			protocol.Release(context.WithoutCancel(ctx), e.grant)
			return
		}
		err = errors.Join(err, e.Leave(ctx))
	}()
	err = fn(held)
	returned = true
	return err
}

// An Entry is a place inside, until it is given back with [Entry.Leave] or lost. It is lost with its session,
// and when another client deletes its node. It is safe for concurrent use.
type Entry struct {
	grant   *protocol.Grant
	session *protocol.Session
	gate    *gate
	left    crowd // what the departure saw; valid once the grant was released
}

// Done returns a channel that is closed when the entry is lost or given back. [Entry.Err] reports which, and may
// report a loss before Done is closed.
func (e *Entry) Done() <-chan struct{} { return e.grant.Done() }

// Err returns nil while the entry is held. After a loss its error wraps [protocol.ErrLost] and the cause. After
// [Entry.Leave] its error wraps [protocol.ErrReleased]. Err computes the answer from the clocks at each call,
// without I/O: in a process that was paused it reports the loss at once.
func (e *Entry) Err() error { return e.grant.Err() }

// Context returns a copy of parent that is also cancelled when the entry is lost or given back, with [Entry.Err]
// as its cause. Its own Err is computed from the clocks at each call. A context derived from it is cancelled when
// the loss is noticed. Call the cancel function when the work is done.
func (e *Entry) Context(parent context.Context) (context.Context, context.CancelFunc) {
	return e.grant.Context(parent)
}

// Token returns the fencing token, which is the same for all members of a round and greater than those of all
// rounds before. It is the number of the transaction that opened the gate.
func (e *Entry) Token() int64 { return e.grant.Token() }

// Check returns an operation to put first into a [zk.Conn] Multi. The whole Multi then fails with [zk.ErrNoNode]
// once the member's node is gone. The path in it is absolute.
func (e *Entry) Check() *zk.CheckVersionRequest { return e.grant.Check() }

// Node returns the member's own name among [Entry.Members].
func (e *Entry) Node() string { return e.grant.Node() }

// Members are the names of the n nodes that crossed together, in the order in which they came: the same for each
// member of the round. They are still the same after some of them have left or died.
func (e *Entry) Members() []string { return slices.Clone(e.gate.members) }

// Leave gives the place back and waits until all other members of the round have left, or died. It blocks until then,
// until ctx ends or the client is closed. The entry ends at once, and its node is deleted in any case: if ctx ends first,
// Leave returns an error that wraps ctx's and the client goes on in the background. That ctx should not be one that was
// derived from the entry.
//
// Leave returns an error that wraps [protocol.ErrLost] if the entry was lost before, or if the session ended before the
// deletion was confirmed. Once it is confirmed Leave waits on in the next session if one is lost. It may be called again,
// and concurrently, and waits for the same. Other errors wrap [protocol.ErrClosed], or are the server's own, such as
// [zk.ErrNoAuth].
//
// The last to leave closes the gate, with a transaction that cannot hit another one. Those who wait are woken by that. As
// the last may have died, the last few to leave look after those who are left, and everybody looks at one member every
// third of a session timeout.
//
// [zk.ErrNoAuth]: https://pkg.go.dev/github.com/go-zookeeper/zk#ErrNoAuth
func (e *Entry) Leave(ctx context.Context) error {
	if err := protocol.Release(ctx, e.grant); err != nil {
		return err
	}
	b := e.gate.barrier
	_, err := protocol.Persist(ctx, b.client, b.path, nil, func(s *protocol.Session) (struct{}, error) {
		if s == e.session {
			return struct{}{}, e.gate.over(ctx, s, e.left)
		}
		// Another server may not have heard of the round yet.
		if err := s.Sync(ctx, b.path); err != nil {
			return struct{}{}, err
		}
		return struct{}{}, e.gate.over(ctx, s, crowd{})
	})
	return protocol.Wrap(recipe, b.path, err)
}
