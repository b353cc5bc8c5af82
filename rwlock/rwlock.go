package rwlock

import (
	"context"
	"errors"

	"github.com/zkrecipes/zkrecipes/protocol"
)

// recipe is what errors and events call this one.
const recipe = "rwlock"

// An RWMutex is a shared lock. It belongs to nobody until [RWMutex.Lock] or [RWMutex.RLock] returns a [Lease];
// goroutines that share an RWMutex contend like processes do. It is safe for concurrent use.
//
// The algorithm is the shared lock of the ZooKeeper documentation's recipes: contenders are ephemeral sequential nodes
// below the lock's path, a reader watches the nearest writer before it, a writer the node just before it.
type RWMutex struct {
	path        string
	line        *protocol.Line
	read, write protocol.Bid
	invalid     error // an option
}

// An Option shapes a lock; give it to [New].
type Option func(*RWMutex)

// WithData stores data in the node of each contender, for [RWMutex.Contenders] to show. With the path it may have
// [protocol.MaxData] bytes; an acquisition with more returns [protocol.ErrTooLarge]. The slice must not be changed
// afterwards.
func WithData(data []byte) Option { return func(m *RWMutex) { m.read.Data, m.write.Data = data, data } }

// New returns the lock at path, which is a node of its own that is created as needed. New does no I/O and cannot fail:
// a nil client, a bad path or a bad option is reported by the first call.
func New(c *protocol.Client, path string, opts ...Option) *RWMutex {
	m := &RWMutex{
		path:  path,
		line:  protocol.NewLine(c, recipe, path, kinds...),
		read:  protocol.Bid{Judge: behindWriter, First: exclusive},
		write: protocol.Bid{Judge: protocol.Exclusive, First: exclusive},
	}
	WithSpelling(Native)(m)
	for _, o := range opts {
		if o != nil {
			o(m)
		}
	}
	return m
}

// Lock waits until everybody who came before has left, and returns the lock to write. It blocks until the lock is
// granted, ctx ends or the client is closed.
//
// If ctx ends first, Lock takes its node out of line (in the background, if that takes longer) and returns an error
// that wraps ctx's; so it does if the grant comes at the same moment. If the session is lost while it waits, or
// somebody deletes its node, it goes to the end of the line again, in the next session if need be. Other errors wrap
// [protocol.ErrClosed], [protocol.ErrTooLarge], [protocol.ErrSequenceExhausted], [zk.ErrInvalidPath], or are the
// server's own, such as [zk.ErrNoAuth].
//
// The lease does not depend on ctx. It is lost with its session.
//
// [zk.ErrInvalidPath]: https://pkg.go.dev/github.com/go-zookeeper/zk#ErrInvalidPath
// [zk.ErrNoAuth]: https://pkg.go.dev/github.com/go-zookeeper/zk#ErrNoAuth
func (m *RWMutex) Lock(ctx context.Context) (*Lease, error) { return m.take(ctx, m.write) }

// RLock waits until all writers who came before have left, and returns the lock to read. It blocks, and returns
// errors, as [RWMutex.Lock] does.
func (m *RWMutex) RLock(ctx context.Context) (*Lease, error) { return m.take(ctx, m.read) }

// TryLock returns the lock to write if nobody holds it, or waits for it, and an error that wraps [ErrLocked] otherwise;
// leases of the caller's own count. It does not wait for the lock, but blocks until the server has answered: to one
// read if the lock is busy, to a read and a write if it is free. A server that lags behind may take a free lock for a
// busy one, never the other way round. Its other errors are those of [RWMutex.Lock].
func (m *RWMutex) TryLock(ctx context.Context) (*Lease, error) { return m.try(ctx, m.write) }

// TryRLock returns the lock to read if no writer holds it or waits for it, and an error that wraps [ErrLocked]
// otherwise. It blocks, and returns errors, as [RWMutex.TryLock] does.
func (m *RWMutex) TryRLock(ctx context.Context) (*Lease, error) { return m.try(ctx, m.read) }

func (m *RWMutex) try(ctx context.Context, bid protocol.Bid) (*Lease, error) {
	bid.Try = true
	return m.take(ctx, bid)
}

func (m *RWMutex) take(ctx context.Context, bid protocol.Bid) (*Lease, error) {
	if m.invalid != nil {
		return nil, protocol.Wrap(recipe, m.path, m.invalid)
	}
	g, err := m.line.Enter(ctx, bid)
	if errors.Is(err, protocol.ErrBusy) {
		err = ErrLocked
	}
	if err != nil {
		return nil, protocol.Wrap(recipe, m.path, err)
	}
	return &Lease{g, m, exclusive(bid.Kind)}, nil
}

// Do calls fn while it holds the lock to write, with a context that is cancelled when the lease is over: lost (its
// cause then wraps [protocol.ErrLost]) or downgraded. It blocks as [RWMutex.Lock] does, then until fn has returned, and
// then until the lock is given back, which it is also if ctx has ended or fn panics. It returns an error of Lock, or
// fn's, joined with the loss of the lease if it was lost before fn returned. A read lease that fn gets from
// [Lease.Downgrade] is fn's to unlock.
func (m *RWMutex) Do(ctx context.Context, fn func(ctx context.Context, l *Lease) error) error {
	return m.do(ctx, m.write, fn)
}

// RDo calls fn while it holds the lock to read, and is [RWMutex.Do] otherwise.
func (m *RWMutex) RDo(ctx context.Context, fn func(ctx context.Context, l *Lease) error) error {
	return m.do(ctx, m.read, fn)
}

func (m *RWMutex) do(ctx context.Context, bid protocol.Bid, fn func(ctx context.Context, l *Lease) error) error {
	l, err := m.take(ctx, bid)
	if err != nil {
		return err
	}
	return protocol.Scope(ctx, l.Grant, func(ctx context.Context) error { return fn(ctx, l) })
}

// Contenders returns everybody in line, in order, as of a moment after the call began: the holders come first, which
// are one writer, or all the readers before the first writer. A lock that nobody wants has none. It blocks until the
// server has answered, with one request for each contender, or ctx ends.
func (m *RWMutex) Contenders(ctx context.Context) ([]Contender, error) {
	if m.invalid != nil {
		return nil, protocol.Wrap(recipe, m.path, m.invalid)
	}
	line, err := m.line.Standings(ctx)
	if err != nil {
		return nil, protocol.Wrap(recipe, m.path, err)
	}
	all := make([]Contender, len(line))
	for i, s := range line {
		all[i] = Contender{s.Name.Node, s.Session, s.Token, s.Data, s.Since, exclusive(s.Name.Kind)}
	}
	return all, nil
}

// Break deletes the node of a contender, by its name in [RWMutex.Contenders]. A holder's lease is lost then, and it is
// told, but it may be about to act on the lock all the same: let [Lease.Token] or [Lease.Check] guard what it does. A
// contender who waits goes to the end of the line. Break blocks until the server has answered or ctx ends. It
// returns an error that wraps [zk.ErrNoNode] if there is no such node.
//
// [zk.ErrNoNode]: https://pkg.go.dev/github.com/go-zookeeper/zk#ErrNoNode
func (m *RWMutex) Break(ctx context.Context, node string) error {
	if m.invalid != nil {
		return protocol.Wrap(recipe, m.path, m.invalid)
	}
	return protocol.Wrap(recipe, m.path, m.line.Break(ctx, node))
}
