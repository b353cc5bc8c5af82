package lock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
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
// while it waits for the next. If several ensembles have a lock of one path, the addresses in their
// connect strings decide. Then all processes must name the same servers (in any order).
//
// It blocks until then, or until ctx ends or a client is closed. If it cannot get a lock, it gives
// all back and returns an error of [Mutex.Lock]. If it loses a lock while it waits for another, it
// gives all back and begins again. Before any I/O it returns an error for no locks, for a nil lock
// and for two locks with the same path and servers (the second would wait for the first). If
// different servers turn out to be one ensemble, it returns the same error later.
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
			err = errors.Join(recipe.Ended(ctx), err)
		}
		if ctx.Err() != nil || lost == nil {
			return nil, fmt.Errorf("lock all: %w", err)
		}
	}
}

// inOrder returns the indexes of the locks in the order of their absolute paths and their servers.
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

	// The chroots of clients differ, so only absolute paths give all processes one order.
	places, order := make([][]string, len(locks)), make([]int, len(locks))
	for i, m := range locks {
		s, err := m.recipe.Session(ctx)
		if err != nil {
			return nil, m.recipe.Wrap(err)
		}
		places[i], order[i] = append([]string{s.Path(m.recipe.Path())}, s.Servers()...), i
		if slices.ContainsFunc(places[:i], func(p []string) bool { return slices.Equal(p, places[i]) }) {
			return nil, m.twice()
		}
	}

	slices.SortFunc(order, func(a, b int) int { return slices.Compare(places[a], places[b]) })
	return order, nil
}

// take takes the locks in this order. It stops as soon as a lock is lost.
func (ls *Leases) take(ctx context.Context, locks []*Mutex, order []int) error {
	for _, i := range order {
		if err := ls.exclude(ctx, locks[i]); err != nil {
			return err
		}
		l, err := locks[i].Lock(ctx)
		if err != nil {
			return err
		}
		ls.all[i], ls.taken = l, append(ls.taken, l)

		// The wait for the next lock ends if this lock is lost.
		held, cancel := l.Context(ctx)
		defer cancel()
		ctx = held
	}
	for _, l := range ls.all {
		l.grant.AfterFunc(ls.end)
	}
	return nil
}

// exclude returns an error if one of the leases is in line for m. (Its client and m's can have been
// given different servers of one ensemble.) Then m would wait for that lease.
func (ls *Leases) exclude(ctx context.Context, m *Mutex) error {
	for _, l := range ls.taken {
		among, err := recipe.AcrossSessions(ctx, m.recipe, func(s *recipe.Session) (bool, error) {
			if s.Path(m.recipe.Path()+"/"+l.Node()) != l.Check().Path {
				return false, nil
			}
			line, err := m.Contenders(ctx)
			return slices.ContainsFunc(line, func(c Contender) bool { return c.Node == l.Node() }), err
		})
		if err != nil {
			return m.recipe.Wrap(err)
		}
		if among {
			return m.twice()
		}
	}
	return nil
}

func (m *Mutex) twice() error { return fmt.Errorf("two locks have the path %s", m.recipe.Path()) }

// All returns the lease of each lock (for [Lease.Token] and [Lease.Check]) in the order in which
// [LockAll] was given them. The caller must not change the slice.
func (ls *Leases) All() []*Lease { return ls.all }

// Done returns a channel that is closed when any of the leases is lost or given back. Like all
// methods, it is safe for concurrent use.
func (ls *Leases) Done() <-chan struct{} { return ls.life.Done() }

// Err returns nil while all of the leases are held. If a lease was lost, its error wraps
// [protocol.ErrLost] and the cause. The error names the lock. After [Leases.Unlock] it wraps
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
	return recipe.HeldContext(parent, ls.life, ls.Err)
}

// Multi does all of the operations if all of the leases are still held, or none. It behaves as
// [Lease.Multi] does, with an ACL and a receipt of the first lock's. Leases of several clients,
// which have a session each, cannot be checked together: then Multi returns [zk.ErrBadArguments].
//
// [zk.ErrBadArguments]: https://pkg.go.dev/github.com/go-zookeeper/zk#ErrBadArguments
func (ls *Leases) Multi(ctx context.Context, ops ...any) ([]zk.MultiResponse, error) {
	grants := make([]*recipe.Grant, len(ls.all))
	for i, l := range ls.all {
		grants[i] = l.grant
		l.mutex.linger.receipts.Add(1)
		defer l.mutex.linger.receipts.Add(1)
	}
	return recipe.MultiHeld(ctx, grants, ops...)
}

// Unlock gives all of the locks back, at once. It blocks until their nodes are deleted or ctx or
// the sessions end, and joins the errors of [Lease.Unlock]. The leases end at once, and the nodes
// are deleted in any case. A ctx of [Leases.Context] ends with the leases but does not end the
// wait. Unlock can be called again and concurrently.
func (ls *Leases) Unlock(ctx context.Context) error {
	errs := make([]error, len(ls.taken))
	var wait sync.WaitGroup
	for i, l := range ls.taken {
		wait.Go(func() {
			errs[i] = l.Unlock(ctx)
			// A context of the leases' own has ended by this very call.
			if ls.haveEnded(ctx) {
				errs[i] = l.Unlock(context.WithoutCancel(ctx))
			}
		})
	}
	wait.Wait()

	// AfterFunc would end it, too, but perhaps after Unlock has returned.
	if ls.Err() != nil {
		ls.end()
	}
	return errors.Join(errs...)
}

// haveEnded reports whether ctx has ended because one of the leases has.
func (ls *Leases) haveEnded(ctx context.Context) bool {
	if ctx == nil || ctx.Err() == nil {
		return false
	}
	cause := context.Cause(ctx)
	return slices.ContainsFunc(ls.taken, func(l *Lease) bool { return l.Err() == cause })
}
