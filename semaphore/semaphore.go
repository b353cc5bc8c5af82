package semaphore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/line"
)

var (
	// ErrNoPermit is returned by TryAcquire and TryDo when they would have to wait.
	ErrNoPermit = line.NewBusy("no permit")

	// ErrPermits is returned when others at the path count on another number of permits.
	ErrPermits = errors.New("contenders disagree about the number of permits")
)

// A Semaphore lets a number of callers hold a permit at a time, in order of arrival. Goroutines
// that share a Semaphore contend as processes do. It is safe for concurrent use.
//
// Contenders are ephemeral sequential nodes. One with n permits waits until one of the n nodes
// before it is gone, and looks again. The number is part of each node's name:
// <owner>-of-<n>-permit-<sequence>.
type Semaphore struct {
	recipe  *protocol.Recipe
	line    *line.Line
	permits atomic.Int64
	data    []byte

	resizes  chan struct{} // has an element while a call of Resize is at work
	resizing atomic.Bool   // one is, so the number at the path may be either
}

// A Contender is one node in line for a permit, a holder's or a waiter's.
type Contender = line.Contender

// An Option shapes a semaphore; give it to [New].
type Option func(*Semaphore) error

// WithData stores data in the node of each contender, for [Semaphore.Contenders] to show, instead
// of the [protocol.Process] or what [protocol.WithOwnerData] says. Data and path together
// may have [protocol.MaxData] bytes. The caller must not change the slice afterwards.
func WithData(data []byte) Option {
	return func(s *Semaphore) error {
		s.data = data
		return nil
	}
}

// New returns the semaphore of so many permits at path, a node of its own that is created as
// needed. New does no I/O and cannot fail: the first call reports a nil client, a bad path, or less
// than one permit.
func New(c *protocol.Client, path string, permits int, opts ...Option) *Semaphore {
	r := protocol.NewRecipe(c, "semaphore", path)
	s := &Semaphore{
		recipe: r, line: line.New(r, line.Kind{Name: "permit-"}, line.Kind{Name: "limit-"}),
		resizes: make(chan struct{}, 1),
	}
	s.permits.Store(int64(permits))
	r.Reject(atLeastOne(permits))
	protocol.Configure(r, s, opts)
	return s
}

func atLeastOne(permits int) error {
	if permits < 1 {
		return fmt.Errorf("a semaphore needs at least one permit, got %d", permits)
	}
	return nil
}

// Acquire waits for a permit. It blocks until fewer than n contenders that came before are left,
// ctx ends or the client is closed. It behaves as [lock.Mutex.Lock] does if ctx ends, if the
// session is lost, or if its node is deleted, and returns the same errors. An error that wraps
// [ErrPermits] says both numbers.
//
// [lock.Mutex.Lock]: https://pkg.go.dev/github.com/zkrecipes/zkrecipes/lock#Mutex.Lock
func (s *Semaphore) Acquire(ctx context.Context) (*Permit, error) { return s.acquire(ctx, false) }

// TryAcquire returns a permit, or an error that wraps [ErrNoPermit] if it would have to wait. It
// blocks until the server has answered: one read if there is no permit, otherwise a write and two
// reads more.
func (s *Semaphore) TryAcquire(ctx context.Context) (*Permit, error) { return s.acquire(ctx, true) }

func (s *Semaphore) acquire(ctx context.Context, try bool) (*Permit, error) {
	request := line.Request{
		Kind: fmt.Sprintf("of-%d-permit-", s.permits.Load()), Data: s.data, Try: try, Blockers: s.blockers, Check: s.check,
	}
	g, err := s.recipe.Acquire(ctx, s.data, func(session *protocol.Session) (*protocol.Grant, error) {
		g, err := s.line.Join(ctx, session, &request)
		if errors.Is(err, line.ErrBusy) {
			err = ErrNoPermit
		}
		return g, err
	})
	if err != nil {
		return nil, err
	}
	return &Permit{g}, nil
}

// Do calls fn while it holds a permit, with a context that is cancelled when the permit is lost. It
// waits for fn to return, and gives the permit back, also if fn panics or ctx has ended. It returns
// an error of [Semaphore.Acquire], or fn's own, joined with the loss of the permit if it was lost.
func (s *Semaphore) Do(ctx context.Context, fn func(ctx context.Context, p *Permit) error) error {
	return s.do(ctx, false, fn)
}

// TryDo is [Semaphore.Do] with [Semaphore.TryAcquire].
func (s *Semaphore) TryDo(ctx context.Context, fn func(ctx context.Context, p *Permit) error) error {
	return s.do(ctx, true, fn)
}

func (s *Semaphore) do(ctx context.Context, try bool, fn func(ctx context.Context, p *Permit) error) error {
	if fn == nil {
		return s.recipe.Wrap(errors.New("nil function"))
	}
	p, err := s.acquire(ctx, try)
	if err != nil {
		return err
	}
	return protocol.RunHeld(ctx, p.grant, func(ctx context.Context) error { return fn(ctx, p) })
}

// Contenders returns the contenders in line, in order of arrival: the holders, then the waiters. It
// blocks until the server has answered, with one request for each of them, or ctx ends.
func (s *Semaphore) Contenders(ctx context.Context) ([]Contender, error) {
	all, err := s.line.Contenders(ctx)
	return slices.DeleteFunc(all, func(c line.Contender) bool {
		_, ok := line.ParseName(c.Node, "permit-")
		return !ok
	}), err
}

// Break deletes the node of a contender, given its name in [Semaphore.Contenders]. A holder then
// loses its permit, and learns of it; a waiter goes to the end of the line. Break blocks until the
// server has answered. Its error wraps [zk.ErrNoNode] if there is no such node, or
// [zk.ErrInvalidPath] if no contender could have that name.
func (s *Semaphore) Break(ctx context.Context, node string) error {
	if n, ok := line.ParseName(node, "limit-"); ok {
		return s.recipe.Wrap(fmt.Errorf("%w: %q is the number of permits", zk.ErrInvalidPath, n.Node))
	}
	return s.line.Break(ctx, node)
}
