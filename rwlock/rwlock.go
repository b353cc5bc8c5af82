package rwlock

import (
	"context"
	"errors"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/line"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// An RWMutex is a shared lock. A caller holds it once [RWMutex.Lock] or [RWMutex.RLock] has
// returned a [Lease]; goroutines that share an RWMutex contend as processes do. It is safe for
// concurrent use.
//
// The algorithm is the shared lock of the ZooKeeper documentation's recipes. Contenders are
// ephemeral sequential nodes below the lock's path. A reader watches the nearest writer before it,
// a writer the node just before it.
type RWMutex struct {
	recipe      *recipe.Recipe
	line        *line.Line
	read, write line.Request
	sharing     *sharing // nil without WithLocalSharing
}

// An Option shapes a lock; give it to [New].
type Option func(*RWMutex) error

// WithData stores data in the node of each contender, for [RWMutex.Contenders] to show, instead of
// the [protocol.Process] or what [protocol.WithOwnerData] says. Data and path together may have
// [recipe.MaxData] bytes; an acquisition with more returns [protocol.ErrTooLarge]. The caller
// must not change the slice afterwards.
func WithData(data []byte) Option {
	return func(m *RWMutex) error {
		m.read.Data, m.write.Data = data, data
		return nil
	}
}

// New returns the lock at path, a node of its own that is created as needed. New does no I/O and
// cannot fail: the first call reports a nil client, a bad path or a bad option.
func New(c *protocol.Client, path string, opts ...Option) *RWMutex {
	r := recipe.New(c, "rwlock", path)
	m := &RWMutex{
		recipe: r,
		line:   line.New(r, kinds...),
		read:   line.Request{Kind: spellings[Native].read, Blockers: nearestWriter},
		write:  line.Request{Kind: spellings[Native].write, Blockers: line.Exclusive},
	}
	recipe.Configure(r, m, opts)
	m.read.Recipe, m.write.Recipe = r.Mode("read"), r.Mode("write")
	if m.sharing != nil {
		m.sharing.recipe = r.Part(path)
	}
	return m
}

// Lock waits until all earlier contenders have left and returns the lock to write. It blocks until
// the lock is granted, ctx ends or the client is closed.
//
// If ctx ends first, Lock takes its node out of line and returns an error that wraps ctx's. It does
// the same if the grant comes at that very moment. A removal that takes longer goes on in the
// background.
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
func (m *RWMutex) Lock(ctx context.Context) (*Lease, error) { return m.take(ctx, &m.write) }

// RLock waits until all earlier writers have left and returns the lock to read. It blocks and
// returns errors as [RWMutex.Lock] does.
func (m *RWMutex) RLock(ctx context.Context) (*Lease, error) { return m.take(ctx, &m.read) }

// TryLock returns the lock to write if no contender holds it or waits for it, and an error that
// wraps [ErrLocked] otherwise. The caller's own leases count, too. It does not wait for the lock,
// but blocks until the server has answered or ctx ends. A busy lock takes one read, and a free lock
// a read and a write. A lagging server can show a free lock as busy, but never a busy lock as free.
// If the only contender is a lock.Mutex that lingers, TryLock waits in line for a quarter of a
// second. The other errors are the errors of [RWMutex.Lock].
func (m *RWMutex) TryLock(ctx context.Context) (*Lease, error) { return m.try(ctx, m.write) }

// TryRLock returns the lock to read if no writer holds it or waits for it, and an error that wraps
// [ErrLocked] otherwise. It blocks and returns errors as [RWMutex.TryLock] does. With
// [WithLocalSharing] it can join readers of this RWMutex although a writer elsewhere waits.
func (m *RWMutex) TryRLock(ctx context.Context) (*Lease, error) { return m.try(ctx, m.read) }

func (m *RWMutex) try(ctx context.Context, request line.Request) (*Lease, error) {
	request.Try = true
	return m.take(ctx, &request)
}

func (m *RWMutex) take(ctx context.Context, request *line.Request) (*Lease, error) {
	g, err := request.Recipe.Acquire(ctx, request.Data, func(s *recipe.Session) (*recipe.Grant, error) {
		g, err := m.sharing.take(ctx, s, m, request)
		if errors.Is(err, line.ErrBusy) {
			err = ErrLocked
		}
		return g, err
	})
	if err != nil {
		return nil, err
	}
	return newLease(g, m, exclusive(request.Kind)), nil
}

// Do calls fn while it holds the lock to write, with a context that is cancelled when the lease is
// lost or downgraded. After a loss the cause of that context wraps [protocol.ErrLost].
//
// Do blocks as [RWMutex.Lock] does, then until fn has returned, and then until the lock is given
// back. It gives the lock back even if ctx has ended or fn panics. It returns an error of Lock, or
// fn's own. If the lease was lost before fn returned, the loss is joined to fn's error. So is the
// server's error if it refuses to delete the node. If fn calls [Lease.Downgrade], it must unlock
// the read lease itself.
func (m *RWMutex) Do(ctx context.Context, fn func(ctx context.Context, l *Lease) error) error {
	return m.do(ctx, &m.write, fn)
}

// RDo calls fn while it holds the lock to read. Otherwise it is [RWMutex.Do].
func (m *RWMutex) RDo(ctx context.Context, fn func(ctx context.Context, l *Lease) error) error {
	return m.do(ctx, &m.read, fn)
}

func (m *RWMutex) do(ctx context.Context, request *line.Request, fn func(ctx context.Context, l *Lease) error) error {
	if fn == nil {
		return m.recipe.Wrap(errors.New("nil function"))
	}
	l, err := m.take(ctx, request)
	if err != nil {
		return err
	}
	return recipe.RunHeld(ctx, l.grant, func(ctx context.Context) error { return fn(ctx, l) })
}

// Contenders returns the contenders in order, as of a moment after the call began. The holders come
// first: one writer, or all readers before the first writer. It blocks until the server has
// answered or ctx ends. It makes one request for each contender.
func (m *RWMutex) Contenders(ctx context.Context) ([]Contender, error) {
	contenders, err := m.line.Contenders(ctx)
	if err != nil {
		return nil, err
	}
	all := make([]Contender, len(contenders))
	for i, c := range contenders {
		all[i] = Contender{c, !isReader(c.Node)}
	}
	return all, nil
}

// Break deletes the node of a contender, given its name in [RWMutex.Contenders]. A holder then
// loses its lease. It may still be about to act on the lock, so fence its writes (with
// [Lease.Multi] or [Lease.Token]). A waiter goes to the end of the line. (If it came less than a
// tenth of a second ago it can be granted the lock at that moment, and then loses its lease as
// well.)
//
// Break blocks until the server has answered or ctx ends. Its error wraps [zk.ErrNoNode] if there
// is no such node.
//
// [zk.ErrNoNode]: https://pkg.go.dev/github.com/go-zookeeper/zk#ErrNoNode
func (m *RWMutex) Break(ctx context.Context, node string) error {
	m.sharing.close() // readers may be joining this node
	return m.line.Break(ctx, node)
}
