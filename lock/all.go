package lock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
)

// Leases are the leases of several locks that are held together: see [LockAll]. It is safe for
// concurrent use.
type Leases struct {
	all   []*Lease // in the order of the arguments
	taken []*Lease // in the order of their paths
	life  context.Context
	end   context.CancelFunc
}

// LockAll waits until it holds all of the locks and returns their leases. It takes one lock after
// the other, in the order of their paths (with the chroot). All processes have the same order, so
// calls of LockAll never wait for each other in a circle. Locks that it holds already stay locked
// while it waits for the next.
//
// It blocks until then, or until ctx ends or a client is closed. If it cannot get a lock, it gives
// all back and returns an error of [Mutex.Lock]. If it loses a lock while it waits for another, it
// gives all back and begins again. Before any I/O it returns an error if there are no locks, a nil
// lock, or two locks with the same path (the second would wait for the first).
//
// The leases do not depend on ctx. Each is lost with its session.
func LockAll(ctx context.Context, locks ...*Mutex) (*Leases, error) {
	order, err := inOrder(ctx, locks)
	if err != nil {
		return nil, fmt.Errorf("lock all: %w", err)
	}
	for {
		held := &Leases{all: make([]*Lease, len(locks))}
		held.life, held.end = context.WithCancel(context.Background())
		err := held.take(ctx, locks, order)
		lost := held.Err()
		if err == nil && lost == nil && ctx.Err() == nil {
			return held, nil
		}

		held.Unlock(ctx)
		if ended := ctx.Err(); ended != nil && !errors.Is(err, ended) {
			err = errors.Join(protocol.Ended(ctx), err)
		}
		if ctx.Err() != nil || lost == nil {
			return nil, fmt.Errorf("lock all: %w", err)
		}
	}
}

// inOrder returns the indexes of the locks in the order of their absolute paths.
func inOrder(ctx context.Context, locks []*Mutex) ([]int, error) {
	if len(locks) == 0 {
		return nil, errors.New("no locks")
	}
	for i, m := range locks {
		if m == nil {
			return nil, fmt.Errorf("lock %d is nil", i)
		}
		if err := m.recipe.Validate(m.request.Data); err != nil {
			return nil, m.recipe.Wrap(err)
		}
	}

	paths, order := make([]string, len(locks)), make([]int, len(locks))
	for i, m := range locks {
		s, err := m.recipe.Session(ctx)
		if err != nil {
			return nil, m.recipe.Wrap(err)
		}
		paths[i], order[i] = s.Path(m.recipe.Path()), i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(paths[a], paths[b]) })
	for i := 1; i < len(order); i++ {
		if paths[order[i]] == paths[order[i-1]] {
			return nil, fmt.Errorf("two locks have the path %s", paths[order[i]])
		}
	}
	return order, nil
}

// take takes the locks in this order. It stops as soon as a lock is lost.
func (ls *Leases) take(ctx context.Context, locks []*Mutex, order []int) error {
	for _, i := range order {
		l, err := locks[i].Lock(ctx)
		if err != nil {
			return err
		}
		ls.all[i], ls.taken = l, append(ls.taken, l)
		held, cancel := l.Context(ctx)
		defer cancel()
		ctx = held
	}
	for _, l := range ls.all {
		l.grant.AfterFunc(ls.end)
	}
	return nil
}

// All returns the lease of each lock, in the order in which [LockAll] was given them, for
// [Lease.Token] and [Lease.Check]. The caller must not change the slice.
func (ls *Leases) All() []*Lease { return ls.all }

// Done returns a channel that is closed when any of the leases is lost or given back. Like all
// methods, it is safe for concurrent use.
func (ls *Leases) Done() <-chan struct{} { return ls.life.Done() }

// Err returns nil while all of the leases are held. If one was lost, its error wraps
// [protocol.ErrLost] and the cause, and names the lock. After [Leases.Unlock] it wraps
// [protocol.ErrReleased]. It is computed from the clocks at each call, as [Lease.Err] is.
func (ls *Leases) Err() error {
	var over error
	for _, l := range ls.taken {
		if err := l.Err(); err != nil && !errors.Is(over, protocol.ErrLost) {
			over = err
		}
	}
	return over
}

// Context returns a copy of parent that is also cancelled when one of the leases is lost or given
// back, with [Leases.Err] as its cause. Its own Err is computed from the clocks at each call. Call
// the cancel function when the work is done.
func (ls *Leases) Context(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	stop := context.AfterFunc(ls.life, func() { cancel(ls.Err()) })
	held := &leasesContext{ctx, ls, cancel}
	held.Err() // they may be over
	return held, func() {
		stop()
		cancel(nil)
	}
}

type leasesContext struct {
	context.Context
	leases *Leases
	cancel context.CancelCauseFunc
}

func (c *leasesContext) Err() error {
	if err := c.leases.Err(); err != nil {
		c.cancel(err)
	}
	return c.Context.Err()
}

// Multi does all of the operations if all of the leases are still held, or none. It behaves as
// [Lease.Multi] does, with an ACL and a receipt of the first lock's. Leases of several clients,
// which have a session each, cannot be checked together: then Multi returns [zk.ErrBadArguments].
//
// [zk.ErrBadArguments]: https://pkg.go.dev/github.com/go-zookeeper/zk#ErrBadArguments
func (ls *Leases) Multi(ctx context.Context, ops ...any) ([]zk.MultiResponse, error) {
	grants := make([]*protocol.Grant, len(ls.all))
	for i, l := range ls.all {
		grants[i] = l.grant
		l.linger.receipts.Store(true)
	}
	return protocol.MultiHeld(ctx, grants, ops...)
}

// Unlock gives all of the locks back, at once. It blocks until their nodes are deleted or ctx or
// the sessions end, and joins the errors of [Lease.Unlock]. The leases end at once, and the nodes
// are deleted in any case. A ctx of [Leases.Context] ends with the leases but does not end the
// wait. Unlock can be called again and concurrently.
func (ls *Leases) Unlock(ctx context.Context) error {
	errs := make(chan error, len(ls.taken))
	for _, l := range ls.taken {
		go func() {
			err := l.Unlock(ctx)
			if ls.haveEnded(ctx) {
				err = l.Unlock(context.WithoutCancel(ctx))
			}
			errs <- err
		}()
	}

	var all error
	for range ls.taken {
		all = errors.Join(all, <-errs)
	}
	if ls.Err() != nil {
		ls.end()
	}
	return all
}

// haveEnded reports whether ctx has ended because one of the leases has.
func (ls *Leases) haveEnded(ctx context.Context) bool {
	if ctx == nil || ctx.Err() == nil {
		return false
	}
	cause := context.Cause(ctx)
	return slices.ContainsFunc(ls.taken, func(l *Lease) bool { return l.Err() == cause })
}
