package rwlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/line"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// Downgrade turns a write lease into a read lease at exactly the same place in line, so no other
// writer can hold the lock in between. Readers that waited for this writer get the lock, and
// waiting writers go on waiting. Others can read from the moment of the call, so write everything
// first. A read lease is returned as it is.
//
// Downgrade blocks until the server has answered or ctx ends. The write lease then ends, as if
// given back. Every context derived from it with [Lease.Context] is cancelled, including the ctx of
// [RWMutex.Do], even if that is the ctx of this call. The returned read lease has the same token,
// and the tokens of the waiting writers are greater.
//
// If ctx has ended before the call, Downgrade returns its error and the write lease goes on. If ctx
// ends while Downgrade is at work, it returns ctx's error and the lock is given back altogether (in
// the background). (A lease that may have been a read lease for some time cannot go on as a write
// lease.)
//
// The error wraps [protocol.ErrLost] if the lease is lost by then, and [protocol.ErrReleased] if it
// was given back or downgraded. Other errors are the server's own, such as [zk.ErrNoAuth], and
// leave the write lease as it was. One exception: if the client's back-off stops on a broken
// connection, that has the effect of ctx's end.
//
// [zk.ErrNoAuth]: https://pkg.go.dev/github.com/go-zookeeper/zk#ErrNoAuth
func (l *Lease) Downgrade(ctx context.Context) (*Lease, error) {
	if !l.exclusive {
		if err := l.Err(); err != nil {
			return nil, err
		}
		return l, nil
	}

	g, err := l.replace(ctx)
	if err != nil {
		return nil, err
	}
	return newLease(g, l.mutex, false), nil
}

// replace makes the write lease's grant a read lease's grant.
func (l *Lease) replace(ctx context.Context) (next *recipe.Grant, err error) {
	g, r := l.grant, l.mutex.read.Recipe
	data := g.Session().NodeData(l.mutex.read.Data)
	if err := r.ValidateCall(ctx, data); err != nil {
		return nil, err
	}

	began := time.Now()
	r.Waiting(ctx)
	defer func() {
		if err == nil {
			r.Waited(ctx, began, next.Session(), next.Token(), nil)
		} else {
			r.Waited(ctx, began, nil, 0, err)
		}
	}()

	// Of two calls the second finds that the lease has ended, unless the first fails.
	select {
	case l.downgrading <- struct{}{}:
		defer func() { <-l.downgrading }()
	case <-ctx.Done():
	}
	if err := cmp.Or(recipe.Ended(ctx), g.Err()); err != nil {
		return nil, r.Wrap(err)
	}

	w := l.downgrade(data)
	end, err := g.Replacing(w.remove)
	if err != nil {
		return nil, err
	}
	next, err = w.run(ctx, end)
	if over := g.Err(); err != nil && errors.Is(over, protocol.ErrLost) {
		err = over
	}
	return next, r.Wrap(err)
}

// A downgrade puts a reader's node into the very place in line that a writer's node has. Both
// happen in one transaction, so others always see one of the two nodes. The sequence number stays.
// The reader's name is never used again, because a reader cannot become a writer.
type downgrade struct {
	lease    *Lease
	data     []byte
	from, to string // the paths of the nodes
}

func (l *Lease) downgrade(data []byte) *downgrade {
	writer, dir := l.grant.Node(), l.mutex.recipe.Path()
	owner, _, _ := recipe.ParseOwner(writer)
	name, _ := line.ParseName(writer, l.mutex.write.Kind)
	reader := fmt.Sprintf("%s-%s"+recipe.SequenceFormat, owner, l.mutex.read.Kind, name.Sequence)
	return &downgrade{l, data, dir + "/" + writer, dir + "/" + reader}
}

// run makes the transaction and hands the lock over to the reader's grant. It calls end when the
// writer's grant has ended, or goes on.
func (d *downgrade) run(ctx context.Context, end func(error)) (*recipe.Grant, error) {
	g := d.lease.grant
	var failed atomic.Bool // so the writer's grant goes on
	next, err := recipe.Detach(ctx, g.Session(), func(ctx context.Context, s *recipe.Session) (*recipe.Grant, error) {
		next, err := d.swap(ctx, s)
		if err != nil {
			failed.Store(true)
			end(err)
		}
		if errors.Is(err, zk.ErrNoNode) { // the writer's node, or the node above it
			err = g.Err()
		}
		return next, err
	}, func(late *recipe.Grant) { d.giveBack(ctx, late, end) })
	if err != nil {
		// The client doesn't know which node exists, so both must go.
		if ctx.Err() != nil || !failed.Load() {
			g.Release(ctx)
		}
		return nil, err
	}

	// From here on the writer's grant has no node. (A Release that came first deletes both nodes.)
	ended := recipe.Ended(ctx)
	if ended == nil {
		if handed, _ := g.ReleaseWith(ctx, nothing); handed {
			end(nil)
			return next, nil
		}
	}
	d.giveBack(ctx, next, end)
	return nil, cmp.Or(ended, g.Err())
}

// giveBack ends both grants and deletes both nodes. The writer's grant ends first because the
// reader's node is all that keeps others out.
func (d *downgrade) giveBack(ctx context.Context, next *recipe.Grant, end func(error)) {
	defer end(nil)
	g := d.lease.grant
	over, cancel := context.WithCancel(ctx)
	cancel()
	g.Release(over) // without waiting
	if errors.Is(g.Err(), protocol.ErrReleased) {
		// The writer's release deletes both nodes. Its answers may have been noticed before the
		// transaction's: then the session's account has the reader's node until this finds none.
		next.ReleaseWith(over, func(ctx context.Context, s *recipe.Session) error {
			g.Release(ctx)
			s.Delete(ctx, d.to, -1)
			return nil
		})
	}
	next.Release(ctx)
	g.Release(ctx)
}

// nothing is the removal of a node that something else deletes.
func nothing(context.Context, *recipe.Session) error { return nil }

// remove deletes the writer's node, and the reader's node that perhaps takes its place. Once the
// first is gone for certain, the transaction can't succeed any more.
func (d *downgrade) remove(ctx context.Context, s *recipe.Session) error {
	first := s.Delete(ctx, d.from, -1)
	if first != nil && !errors.Is(first, zk.ErrNoNode) {
		return first
	}

	second := s.Delete(ctx, d.to, -1)
	if errors.Is(second, zk.ErrNoNode) {
		return first
	}
	return second
}

// swap makes the transaction, and a grant of the reader's node.
func (d *downgrade) swap(ctx context.Context, s *recipe.Session) (*recipe.Grant, error) {
	g := d.lease.grant
	uncertain := false
	_, err := recipe.DoOnce(ctx, s, func(c *zk.Conn) (struct{}, error) {
		if err := s.Abandoned(); err != nil {
			return struct{}{}, err
		}

		_, err := recipe.Multi(c,
			// Waiters for the writer's node see this change instead, and look again.
			&zk.SetDataRequest{Path: s.Path(d.from), Version: -1},
			&zk.CreateRequest{Path: s.Path(d.to), Data: d.data, Acl: s.ACL(d.to), Flags: zk.FlagEphemeral},
			&zk.DeleteRequest{Path: s.Path(d.from), Version: -1})
		uncertain = recipe.OutcomeUnknown(err)
		return struct{}{}, err
	}, func(ctx context.Context) (_ struct{}, done bool, err error) {
		there, err := s.Exists(ctx, d.to) // only this client creates it
		done = there != nil
		uncertain = uncertain && (done || err != nil)
		return struct{}{}, done, err
	})

	if err != nil && uncertain {
		err = fmt.Errorf("%w: %w", protocol.ErrUncertain, err)
	}

	switch {
	case errors.Is(err, protocol.ErrUncertain):
		g.Release(ctx)
		return nil, err
	case err != nil:
		return nil, err
	}

	return d.lease.mutex.read.Recipe.NewGrant(ctx, s, d.to, g.Token(), func(ctx context.Context, s *recipe.Session) error {
		return s.Delete(ctx, d.to, -1)
	})
}
