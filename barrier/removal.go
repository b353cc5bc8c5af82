package barrier

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// Remove removes the barrier, and all callers of [Barrier.Wait] return. A barrier that is not set
// stays so.
//
// Remove blocks until the server has answered. If a session is lost, it goes on in the next
// session. If ctx ends first, Remove returns an error that wraps ctx's. Then this barrier may be
// removed now or later, but never a barrier that is set meanwhile. Other errors wrap
// [protocol.ErrClosed] or [zk.ErrInvalidPath] or are the server's own (such as [zk.ErrNotEmpty] if
// the barrier's node has children that are not of this package).
//
// A late request recognises a barrier that was set meanwhile. If [Barrier.Set] found the old
// barrier, the node's version has changed. Otherwise a second node is missing, and its name is
// never used again. Below a persistent barrier, Remove itself creates that node first. An ephemeral
// node has no children, so Set creates the second node beside it. Both nodes are deleted together.
//
// An ephemeral barrier of another library has no second node. Remove does not repeat its deletion
// once another barrier is set. But a deletion that was sent once may still arrive late.
//
// [zk.ErrInvalidPath]: https://pkg.go.dev/github.com/go-zookeeper/zk#ErrInvalidPath
// [zk.ErrNotEmpty]: https://pkg.go.dev/github.com/go-zookeeper/zk#ErrNotEmpty
func (b *Barrier) Remove(ctx context.Context) error {
	return b.acrossSessions(ctx, func(s *recipe.Session) error {
		for {
			stat, err := b.stat(ctx, s)
			if errors.Is(err, zk.ErrNoNode) {
				return nil
			} else if err != nil {
				return err
			}

			r := &removal{barrier: b, session: s, stat: stat}
			if stat.EphemeralOwner == 0 {
				err = r.removePersistent(ctx)
			} else {
				err = r.removeEphemeral(ctx)
			}
			if !errors.Is(err, zk.ErrBadVersion) && !errors.Is(err, zk.ErrNoNode) {
				return err
			}
		}
	})
}

// stat reads the node behind a Sync: a server that lags may not know of the barrier yet.
func (b *Barrier) stat(ctx context.Context, s *recipe.Session) (*zk.Stat, error) {
	if err := s.Sync(ctx, b.recipe.Path()); err != nil {
		return nil, err
	}

	_, stat, err := s.Get(ctx, b.recipe.Path())
	return stat, err
}

const (
	idSuffix     = "-barrier" // of the name of a node beside an ephemeral barrier
	markerSuffix = "-remove"  // of the name of a child that a removal creates
)

// idPath returns the path of the node that tells an ephemeral barrier from all others.
func (b *Barrier) idPath(owner recipe.Owner) string {
	return b.recipe.Path() + "-" + owner.String() + idSuffix
}

// A removal is an attempt to remove one barrier, and no later one.
type removal struct {
	barrier *Barrier
	session *recipe.Session
	stat    *zk.Stat // of the barrier
}

// removePersistent creates a marker below the barrier and deletes both together.
func (r *removal) removePersistent(ctx context.Context) error {
	_, err := recipe.Detach(ctx, r.session, func(ctx context.Context, s *recipe.Session) (struct{}, error) {
		r := &removal{r.barrier, s, r.stat}
		marker := r.barrier.recipe.Path() + "/" + s.NewOwner().String() + markerSuffix
		err := s.Create(ctx, marker, nil, zk.FlagEphemeral)
		if errors.Is(err, protocol.ErrQuotaExceeded) || errors.Is(err, protocol.ErrSessionFull) {
			// A removal makes room, so it must not need room. Without the marker, we can remove a
			// barrier with the same version that is set at this very moment.
			return struct{}{}, r.removeForeign(ctx)
		}
		if err != nil && !errors.Is(err, zk.ErrNodeExists) { // an attempt whose answer was lost has created it
			return struct{}{}, err
		}

		err = r.removeMarked(ctx, marker)
		if err != nil {
			if failed := s.Delete(ctx, marker, -1); !errors.Is(failed, zk.ErrNoNode) {
				err = errors.Join(err, failed)
			}
		}
		return struct{}{}, err
	}, nil)
	return err
}

// removeMarked deletes the barrier together with the marker, and with the markers of other
// removals.
func (r *removal) removeMarked(ctx context.Context, marker string) error {
	markers := []string{marker}
	for r.session.Abandoned() == nil {
		err := r.deleteWith(ctx, markers)
		if errors.Is(err, protocol.ErrTooLarge) && len(markers) > 1 {
			// The marker of another removal goes first. (That removal begins again.)
			_, err = r.session.Multi(ctx, &zk.DeleteRequest{Path: markers[1], Version: -1})
			if err == nil || errors.Is(err, zk.ErrNoNode) {
				markers = slices.Delete(markers, 1, 2)
				continue
			}
		}
		if errors.Is(err, zk.ErrNoNode) && len(markers) == 1 {
			return r.confirm(ctx)
		} else if !errors.Is(err, zk.ErrNotEmpty) && !errors.Is(err, zk.ErrNoNode) {
			return err
		}

		children, _, err := r.session.Children(ctx, r.barrier.recipe.Path())
		if err != nil {
			return err
		}

		markers = markers[:1]
		for _, child := range children {
			if !strings.HasSuffix(child, markerSuffix) {
				return fmt.Errorf("%w: child %s", zk.ErrNotEmpty, child)
			}
			if other := r.barrier.recipe.Path() + "/" + child; other != marker {
				markers = append(markers, other)
			}
		}
	}
	return r.session.Abandoned()
}

// confirm returns nil if the barrier is gone, and [zk.ErrNoNode] if it is still there. The marker
// is gone by then: removals delete it together with the barrier, and operators may delete it alone.
func (r *removal) confirm(ctx context.Context) error {
	stat, err := r.session.Exists(ctx, r.barrier.recipe.Path())
	if err == nil && stat != nil && stat.Czxid == r.stat.Czxid {
		err = zk.ErrNoNode
	}
	return err
}

// removeEphemeral deletes the barrier together with the ID nodes that its setter's session has
// created beside it: usually one (more if another client has deleted a barrier and not its ID
// node).
func (r *removal) removeEphemeral(ctx context.Context) error {
	dir, base := path.Split(r.barrier.recipe.Path())
	siblings, _, err := r.session.Children(ctx, path.Clean(dir))
	if err != nil {
		return err
	}

	prefix := fmt.Sprintf("%s-%016x-", base, uint64(r.stat.EphemeralOwner))
	var ids []string
	for _, sibling := range siblings {
		if strings.HasPrefix(sibling, prefix) && strings.HasSuffix(sibling, idSuffix) {
			ids = append(ids, dir+sibling)
		}
	}

	if len(ids) == 0 { // set by another library
		return r.removeForeign(ctx)
	}
	return r.deleteWith(ctx, ids)
}

// removeForeign deletes a barrier that differs from a later barrier only by its czxid. A deletion
// cannot name a czxid, so it is repeated only while that barrier is still there.
func (r *removal) removeForeign(ctx context.Context) error {
	b, s := r.barrier, r.session
	_, err := recipe.DoOnce(ctx, s, func(c *zk.Conn) (struct{}, error) {
		return struct{}{}, recipe.Delete(c, s.Path(b.recipe.Path()), r.stat.Version)
	}, func(ctx context.Context) (_ struct{}, done bool, err error) {
		_, now, err := s.Get(ctx, b.recipe.Path())
		if errors.Is(err, zk.ErrNoNode) {
			return struct{}{}, true, nil
		}
		return struct{}{}, err == nil && now.Czxid != r.stat.Czxid, err
	})
	return err
}

// deleteWith deletes the barrier (if it still has the version that was read) and the other nodes,
// or nothing.
func (r *removal) deleteWith(ctx context.Context, others []string) error {
	var ops []any
	for _, other := range others {
		ops = append(ops, &zk.DeleteRequest{Path: other, Version: -1})
	}

	ops = append(ops, &zk.DeleteRequest{Path: r.barrier.recipe.Path(), Version: r.stat.Version})
	_, err := r.session.Multi(ctx, ops...)
	return err
}
