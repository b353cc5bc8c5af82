package lock

import (
	"context"
	"errors"

	"github.com/zkrecipes/zkrecipes/protocol"
)

// A Mutex is a fair lock: it is granted in order of arrival. It belongs to nobody until [Mutex.Lock] returns a
// [Lease]; goroutines that share a Mutex contend like processes do. It is safe for concurrent use.
//
// The algorithm is the lock of the ZooKeeper documentation's recipes: contenders are ephemeral sequential nodes below
// the lock's path, the first one holds the lock, and each other one watches the one before it.
type Mutex struct {
	path    string
	line    *protocol.Line
	bid     protocol.Bid
	acquire func(context.Context, protocol.Bid) (*protocol.Grant, error)
}

// kind is the spelling of our nodes, and of those of Apache Curator and go-zookeeper; kazooKind is kazoo's.
const (
	kind      = "lock-"
	kazooKind = "__lock__"
)

// New returns the lock at path, which is a node of its own that is created as needed. New does no I/O and cannot fail:
// a nil client or a bad path is reported by the first call.
func New(c *protocol.Client, path string, opts ...Option) *Mutex {
	m := &Mutex{
		path: path,
		line: protocol.NewLine(c, "lock", path, kind, kazooKind),
		bid:  protocol.Bid{Kind: kind},
	}
	m.acquire = m.line.Enter
	for _, o := range opts {
		if o != nil {
			o(m)
		}
	}
	return m
}

// Lock waits its turn and returns the lock. It blocks until the lock is granted, ctx ends or the client is closed.
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
func (m *Mutex) Lock(ctx context.Context) (*Lease, error) {
	return m.take(ctx, m.bid)
}

// TryLock returns the lock if nobody holds it or waits for it, and an error that wraps [ErrLocked] otherwise. It does
// not wait for the lock, but blocks until the server has answered: to one read if the lock is busy, to a read and a
// write if it is free. A server that lags behind may take a free lock for a busy one, never the other way round. Its
// other errors are those of [Mutex.Lock].
func (m *Mutex) TryLock(ctx context.Context) (*Lease, error) {
	bid := m.bid
	bid.Try = true
	return m.take(ctx, bid)
}

func (m *Mutex) take(ctx context.Context, bid protocol.Bid) (*Lease, error) {
	g, err := m.acquire(ctx, bid)
	if errors.Is(err, protocol.ErrBusy) {
		err = ErrLocked
	}
	if err != nil {
		return nil, protocol.Wrap("lock", m.path, err)
	}
	return &Lease{g}, nil
}

// Do calls fn while it holds the lock, with a context that is cancelled when the lease is lost (its cause then wraps
// [protocol.ErrLost]). It blocks as [Mutex.Lock] does, then until fn has returned, and then until the lock is given
// back, which it is also if ctx has ended or fn panics. It returns an error of Lock, or fn's, joined with the loss of the
// lease if it was lost before fn returned.
func (m *Mutex) Do(ctx context.Context, fn func(ctx context.Context, l *Lease) error) error {
	l, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	return protocol.Scope(ctx, l.Grant, func(ctx context.Context) error { return fn(ctx, l) })
}

// Contenders returns everybody in line, the holder first, as of a moment after the call began. A lock that nobody
// wants has none. It blocks until the server has answered, with one request for each of them, or ctx ends.
func (m *Mutex) Contenders(ctx context.Context) ([]Contender, error) {
	line, err := m.line.Standings(ctx)
	if err != nil {
		return nil, protocol.Wrap("lock", m.path, err)
	}
	all := make([]Contender, len(line))
	for i, s := range line {
		all[i] = Contender{s.Name.Node, s.Session, s.Token, s.Data, s.Since}
	}
	return all, nil
}

// Break deletes the node of a contender, by its name in [Mutex.Contenders]. A holder's lease is lost then, and it is
// told, but it may be about to act on the lock all the same: let [Lease.Token] or [Lease.Check] guard what it does. A
// contender who waits goes to the end of the line. Break blocks until the server has answered or ctx ends. It
// returns an error that wraps [zk.ErrNoNode] if there is no such node.
//
// [zk.ErrNoNode]: https://pkg.go.dev/github.com/go-zookeeper/zk#ErrNoNode
func (m *Mutex) Break(ctx context.Context, node string) error {
	return protocol.Wrap("lock", m.path, m.line.Break(ctx, node))
}
