package lock

import (
	"context"
	"errors"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/line"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// A Mutex is a fair lock: it is granted in order of arrival. A caller holds it once [Mutex.Lock]
// has returned a [Lease]; goroutines that share a Mutex contend as processes do. It is safe for
// concurrent use.
//
// The algorithm is the lock of the ZooKeeper documentation's recipes. Contenders are ephemeral
// sequential nodes below the lock's path. The first contender holds the lock, and every other
// contender watches its predecessor.
type Mutex struct {
	recipe  *recipe.Recipe
	line    *line.Line
	request line.Request
	linger  *linger
	acquire attempt // in line, or as a Simple does
}

// An Option shapes a lock; give it to [New] or [NewSimple].
type Option func(*Mutex) error

// New returns the lock at path, a node of its own that is created as needed. New does no I/O and
// cannot fail: the first call reports a nil client, a bad path or a bad option.
func New(c *protocol.Client, path string, opts ...Option) *Mutex {
	r := recipe.New(c, "lock", path)
	l := line.New(r, line.Locks...)
	m := &Mutex{
		recipe:  r,
		line:    l,
		request: line.Request{Kind: "lock-", Blockers: line.Exclusive},
		linger:  &linger{recipe: r, line: l, client: c, most: defaultLingerLimit},
		acquire: l.Join,
	}
	recipe.Configure(r, m, opts)
	return m
}

// Lock waits in line and returns the lock. It blocks until the lock is granted, ctx ends or the
// client is closed.
//
// If ctx ends first, Lock takes its node out of line and returns an error that wraps ctx's. It does
// the same if the grant comes at that very moment. A removal that takes longer goes on in the
// background. If this client itself holds the lock (in another goroutine, or further up the stack),
// the log says so after five seconds.
//
// If Lock loses its session or its node while it waits, it joins again at the end of the line
// (after a lost session in the next session). Other errors wrap [protocol.ErrClosed],
// [protocol.ErrTooLarge], [protocol.ErrSequenceExhausted], [protocol.ErrMixed] or
// [zk.ErrInvalidPath]. Or they are the server's own (such as [zk.ErrNoAuth]).
//
// The lease does not depend on ctx. It is lost with its session.
//
// [zk.ErrInvalidPath]: https://pkg.go.dev/github.com/go-zookeeper/zk#ErrInvalidPath
// [zk.ErrNoAuth]: https://pkg.go.dev/github.com/go-zookeeper/zk#ErrNoAuth
func (m *Mutex) Lock(ctx context.Context) (*Lease, error) { return m.take(ctx, &m.request) }

// TryLock returns the lock if no contender holds it or waits for it, and an error that wraps
// [ErrLocked] otherwise. It does not wait for the lock, but blocks until the server has answered or
// ctx ends. A busy lock takes one read. A free lock takes a read and a write. If the only contender
// lingers, TryLock waits in line for a quarter of a second: see [WithLinger]. A server that lags
// behind may show a free lock as busy, but never a busy one as free. Its other errors are the
// errors of [Mutex.Lock].
func (m *Mutex) TryLock(ctx context.Context) (*Lease, error) {
	request := m.request
	request.Try = true
	return m.take(ctx, &request)
}

func (m *Mutex) take(ctx context.Context, request *line.Request) (*Lease, error) {
	g, err := m.recipe.Acquire(ctx, request.Data, func(s *recipe.Session) (*recipe.Grant, error) {
		g, err := m.linger.take(ctx, s, request, m.acquire)
		if errors.Is(err, line.ErrBusy) {
			err = ErrLocked
		}
		return g, err
	})

	if err != nil {
		return nil, err
	}
	return &Lease{grant: g, mutex: m}, nil
}

// Do calls fn while it holds the lock, with a context that is cancelled when the lease is lost. The
// cause of that context then wraps [protocol.ErrLost].
//
// Do blocks as [Mutex.Lock] does. Then it blocks until fn has returned and the lock is given back.
// It gives the lock back even if ctx has ended or fn panics. It returns an error of Lock or fn's
// own. If the lease was lost before fn returned, Do joins the loss to fn's error. If the server
// refuses to delete the lock's node, Do joins that error.
func (m *Mutex) Do(ctx context.Context, fn func(ctx context.Context, l *Lease) error) error {
	return m.do(ctx, m.Lock, fn)
}

// TryDo is [Mutex.Do] with [Mutex.TryLock]: if it would have to wait, it returns an error that
// wraps [ErrLocked] and does not call fn.
func (m *Mutex) TryDo(ctx context.Context, fn func(ctx context.Context, l *Lease) error) error {
	return m.do(ctx, m.TryLock, fn)
}

func (m *Mutex) do(ctx context.Context, acquire func(context.Context) (*Lease, error),
	fn func(context.Context, *Lease) error) error {
	if fn == nil {
		return m.recipe.Wrap(errors.New("nil function"))
	}
	l, err := acquire(ctx)
	if err != nil {
		return err
	}
	return recipe.RunHeld(ctx, l.grant, func(ctx context.Context) error { return fn(ctx, l) })
}

// Contenders returns the contenders in line (the holder first) as of a moment after the call began.
// A holder with Lingers that is alone in line may be unused: see [WithLinger]. Contenders blocks
// until the server has answered (one request for each contender) or ctx ends.
func (m *Mutex) Contenders(ctx context.Context) ([]Contender, error) { return m.line.Contenders(ctx) }

// Break deletes the node of a contender, given its name in [Mutex.Contenders]. A holder then loses
// its lease. It may still be about to act on the lock, so fence its writes (with [Lease.Multi] or
// [Lease.Token]). A waiter goes to the end of the line. (If it came less than a tenth of a second
// ago it can be granted the lock at that moment, and then loses its lease as well.)
//
// Break blocks until the server has answered or ctx ends. Its error wraps [zk.ErrNoNode] if there
// is no such node.
//
// [zk.ErrNoNode]: https://pkg.go.dev/github.com/go-zookeeper/zk#ErrNoNode
func (m *Mutex) Break(ctx context.Context, node string) error { return m.line.Break(ctx, node) }
