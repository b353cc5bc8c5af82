package barrier

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
)

const recipe = "barrier"

// ErrEphemeral is returned by [Barrier.Set] when the barrier is set, but is an ephemeral one of another session, which
// lives, or of another Barrier of this client, which did not ask for the same: it falls with that session.
var ErrEphemeral = errors.New("set, but falls with another session")

// A Barrier is set, waited at and removed by any number of processes. It is safe for concurrent use.
//
// The algorithm is the barrier of the ZooKeeper documentation's recipes: the barrier is set while a node exists, and who
// waits watches that. What makes a removal harmless that comes too late is described at [Barrier.Remove].
type Barrier struct {
	client    *protocol.Client
	path      string
	data      []byte
	ephemeral bool
}

// An Option shapes a barrier; give it to [New].
type Option func(*Barrier)

// WithData stores data in the node whenever the barrier is set, for whoever looks at it. With the path it may have
// [protocol.MaxData] bytes; [Barrier.Set] returns [protocol.ErrTooLarge] for more. The slice must not be changed
// afterwards.
func WithData(data []byte) Option { return func(b *Barrier) { b.data = data } }

// Ephemeral makes a barrier that falls when the session ends under which it was set: those who wait are not left
// waiting by a setter that has died. See [protocol.Client.Session] for when that is, and [Barrier.Set] for a setter that is
// started again. A barrier that was set without this option stays one that does not fall.
func Ephemeral() Option { return func(b *Barrier) { b.ephemeral = true } }

// New returns the barrier at path, whose parents are created as needed. New does no I/O and cannot fail: a nil client or
// a bad path is reported by the first call.
func New(c *protocol.Client, path string, opts ...Option) *Barrier {
	b := &Barrier{client: c, path: path}
	for _, o := range opts {
		if o != nil {
			o(b)
		}
	}
	return b
}

// Set sets the barrier. If it is set already it gets the new data and otherwise stays what it is. A removal that was begun
// before, and has not happened yet, has no effect any more.
//
// When Set returns nil, the barrier does not fall with another session than the client's present one, and without
// [Ephemeral] with none. So if Set finds a barrier that falls with another session, it waits until that barrier is gone,
// and then sets its own: a process that was started again waits for the end of the session that it had before. Those who
// wait at the old barrier go on when it falls. If the old barrier still stands after two session timeouts, its setter is
// taken to live, and Set returns an error that wraps [ErrEphemeral]. Set returns that error at once if it is this client's
// session that the barrier falls with, and this Barrier is not Ephemeral.
//
// Otherwise Set blocks until the server has answered. It goes on in the next session if one is lost. If ctx ends it
// returns an error that wraps ctx's; the barrier may then be set, or may yet be. Other errors wrap [protocol.ErrClosed],
// [protocol.ErrTooLarge], [zk.ErrInvalidPath], or are the server's own, such as [zk.ErrNoAuth].
func (b *Barrier) Set(ctx context.Context) error {
	var giveUp time.Time // on another session to end
	return b.do(ctx, b.data, func(s *protocol.Session) error {
		for {
			err := b.create(ctx, s)
			if errors.Is(err, zk.ErrNoNode) {
				if _, err = s.EnsurePath(ctx, parentOf(b.path)); err == nil {
					continue
				}
			}
			if !errors.Is(err, zk.ErrNodeExists) {
				return err
			}

			// The new version is what those who are about to remove the barrier did not see.
			stat, err := protocol.Do(ctx, s, func(c *zk.Conn) (*zk.Stat, error) {
				return protocol.Set(c, s.Path(b.path), b.data, -1)
			})
			if errors.Is(err, zk.ErrNoNode) {
				continue
			} else if err != nil || stat.EphemeralOwner == 0 {
				return err
			}

			if stat.EphemeralOwner == s.ID() {
				if !b.ephemeral {
					err = ErrEphemeral
				}
				return err
			}
			if giveUp.IsZero() {
				giveUp = time.Now().Add(2 * s.Timeout())
			}
			if err := b.awaitFall(ctx, s, stat, giveUp); err != nil {
				return err
			}
		}
	})
}

// awaitFall waits until a barrier of another session is gone. It returns an error that wraps ErrEphemeral if that has not
// happened by then.
func (b *Barrier) awaitFall(ctx context.Context, s *protocol.Session, set *zk.Stat, giveUp time.Time) error {
	patient, cancel := context.WithDeadline(ctx, giveUp)
	defer cancel()
	_, err := s.Until(patient, b.path, func(stat *zk.Stat) bool { return stat.Czxid != set.Czxid })
	if err != nil && patient.Err() != nil && ctx.Err() == nil && s.Err() == nil {
		return fmt.Errorf("%w: %#x", ErrEphemeral, set.EphemeralOwner)
	}
	return err
}

func (b *Barrier) create(ctx context.Context, s *protocol.Session) error {
	node := s.Path(b.path)
	_, err := protocol.Do(ctx, s, func(c *zk.Conn) (struct{}, error) {
		if !b.ephemeral {
			_, err := protocol.Create(c, node, b.data, zk.FlagPersistent, b.client.ACL())
			return struct{}{}, err
		}
		_, err := protocol.Multi(c,
			&zk.CreateRequest{Path: node, Data: b.data, Acl: b.client.ACL(), Flags: zk.FlagEphemeral},
			&zk.CreateRequest{Path: node + "-" + s.NewOwner().String() + sealMark, Acl: b.client.ACL(), Flags: zk.FlagEphemeral})
		return struct{}{}, err
	})
	return err
}

// Remove removes the barrier, and everybody who waits goes on. A barrier that is not set is left so.
//
// It blocks until the server has answered, and goes on in the next session if one is lost. If ctx ends it returns an
// error that wraps ctx's; then the barrier may be removed, or may yet be, but not one that was set meanwhile: a request
// that is still on its way finds that the barrier is another one, by the version of its node if [Barrier.Set] found it
// set, and otherwise by a second node with a name that is never used again. That is a child which the removal creates
// before, or, as ephemeral nodes have none, one beside the barrier that was created with it. Both are deleted together
// with the barrier. An ephemeral barrier that another library has set has no such node: a removal of that is not repeated
// once another barrier is set, but one that was sent only once may still arrive late. Other errors wrap
// [protocol.ErrClosed], [zk.ErrInvalidPath], or are the server's own, such as
// [zk.ErrNotEmpty] if the barrier's node has children of somebody else.
func (b *Barrier) Remove(ctx context.Context) error {
	return b.do(ctx, nil, func(s *protocol.Session) error {
		for {
			stat, err := b.stat(ctx, s)
			switch {
			case errors.Is(err, zk.ErrNoNode):
				return nil
			case err != nil:
				return err
			case stat.EphemeralOwner != 0:
				err = b.removeEphemeral(ctx, s, stat)
			default:
				err = b.removePersistent(ctx, s, stat)
			}
			if !errors.Is(err, zk.ErrBadVersion) && !errors.Is(err, zk.ErrNoNode) {
				return err
			}
		}
	})
}

// stat reads the node after a Sync: who lags behind must not take a barrier that is set for one that is not.
func (b *Barrier) stat(ctx context.Context, s *protocol.Session) (*zk.Stat, error) {
	if err := s.Sync(ctx, b.path); err != nil {
		return nil, err
	}
	return protocol.Do(ctx, s, func(c *zk.Conn) (*zk.Stat, error) {
		_, stat, err := c.Get(s.Path(b.path))
		return stat, err
	})
}

const (
	sealMark   = "-barrier" // ends the name of a node beside an ephemeral barrier
	removeMark = "-remove"  // ends the name of a child that a removal creates
)

// removePersistent marks the barrier with a child, and deletes it together with that.
func (b *Barrier) removePersistent(ctx context.Context, s *protocol.Session, stat *zk.Stat) error {
	_, err := protocol.Finish(ctx, s, func(life context.Context) (struct{}, error) {
		mark := s.Path(b.path) + "/" + s.NewOwner().String() + removeMark
		err := b.mark(life, s, mark)
		if err != nil {
			return struct{}{}, err
		}
		err = b.removeMarked(ctx, life, s, stat, mark)
		if err != nil {
			err = errors.Join(err, discard(life, s, mark))
		}
		return struct{}{}, err
	}, nil)
	return err
}

func (b *Barrier) mark(life context.Context, s *protocol.Session, mark string) error {
	_, err := protocol.Do(life, s, func(c *zk.Conn) (struct{}, error) {
		_, err := protocol.Create(c, mark, nil, zk.FlagEphemeral, b.client.ACL())
		return struct{}{}, err
	})
	if errors.Is(err, zk.ErrNodeExists) { // by an attempt whose answer was lost
		err = nil
	}
	return err
}

func (b *Barrier) removeMarked(ctx, life context.Context, s *protocol.Session, stat *zk.Stat, mark string) error {
	node := s.Path(b.path)
	marks := []string{mark}
	for ctx.Err() == nil {
		err := deleteAll(life, s, node, stat.Version, marks)
		switch {
		case errors.Is(err, zk.ErrNoNode) && len(marks) == 1:
			return nil // nobody deletes our mark but together with the barrier
		case errors.Is(err, zk.ErrNotEmpty), errors.Is(err, zk.ErrNoNode):
			children, err := protocol.Do(life, s, func(c *zk.Conn) ([]string, error) {
				children, _, err := c.Children(node)
				return children, err
			})
			if err != nil {
				return err
			}
			marks = marks[:1]
			for _, child := range children {
				if !strings.HasSuffix(child, removeMark) {
					return fmt.Errorf("%w: child %s", zk.ErrNotEmpty, child)
				}
				if other := node + "/" + child; other != mark {
					marks = append(marks, other)
				}
			}
		default:
			return err
		}
	}
	return ctx.Err()
}

// removeEphemeral deletes the barrier together with the nodes beside it that its setter's session has created with it:
// one, unless somebody has deleted a barrier without the other.
func (b *Barrier) removeEphemeral(ctx context.Context, s *protocol.Session, stat *zk.Stat) error {
	node := s.Path(b.path)
	parent := parentOf(node)
	siblings, err := protocol.Do(ctx, s, func(c *zk.Conn) ([]string, error) {
		siblings, _, err := c.Children(parent)
		return siblings, err
	})
	if err != nil {
		return err
	}
	owner := fmt.Sprintf("%s-%016x-", node[strings.LastIndexByte(node, '/')+1:], uint64(stat.EphemeralOwner))
	var seals []string
	for _, sibling := range siblings {
		if strings.HasPrefix(sibling, owner) && strings.HasSuffix(sibling, sealMark) {
			seals = append(seals, strings.TrimSuffix(parent, "/")+"/"+sibling)
		}
	}
	if len(seals) == 0 { // set by another library
		return b.removeUnsealed(ctx, s, stat)
	}
	return deleteAll(ctx, s, node, stat.Version, seals)
}

// removeUnsealed deletes an ephemeral barrier that only its czxid tells from a later one. A deletion cannot name that, so
// it is repeated only while the barrier that was meant is still there.
func (b *Barrier) removeUnsealed(ctx context.Context, s *protocol.Session, stat *zk.Stat) error {
	_, err := protocol.Settle(ctx, s, func(c *zk.Conn) (struct{}, error) {
		return struct{}{}, c.Delete(s.Path(b.path), stat.Version)
	}, func(ctx context.Context) (v struct{}, done bool, err error) {
		now, err := b.stat(ctx, s)
		if errors.Is(err, zk.ErrNoNode) {
			return v, true, nil
		}
		return v, err == nil && now.Czxid != stat.Czxid, err
	})
	return err
}

// deleteAll deletes the node, if it has this version, and the others, or nothing.
func deleteAll(ctx context.Context, s *protocol.Session, node string, version int32, others []string) error {
	var ops []any
	for _, other := range others {
		ops = append(ops, &zk.DeleteRequest{Path: other, Version: -1})
	}
	ops = append(ops, &zk.DeleteRequest{Path: node, Version: version})
	_, err := protocol.Do(ctx, s, func(c *zk.Conn) ([]zk.MultiResponse, error) { return protocol.Multi(c, ops...) })
	return err
}

// discard deletes a node whose name is never used again.
func discard(ctx context.Context, s *protocol.Session, node string) error {
	_, err := protocol.Do(ctx, s, func(c *zk.Conn) (struct{}, error) { return struct{}{}, c.Delete(node, -1) })
	if errors.Is(err, zk.ErrNoNode) {
		err = nil
	}
	return err
}

// Wait blocks until the barrier is not set: it returns at once if it is not, also if its parents do not exist, and
// otherwise when it is removed, or falls because it was ephemeral. It waits on in the next session if one is lost.
//
// If ctx ends it returns an error that wraps ctx's. Other errors wrap [protocol.ErrClosed], [zk.ErrInvalidPath], or are
// the server's own, such as [zk.ErrNoAuth].
func (b *Barrier) Wait(ctx context.Context) error {
	began, first := time.Now(), int64(0)
	err := b.do(ctx, nil, func(s *protocol.Session) error {
		// What the caller may have heard of by other ways has to be seen here, too.
		if err := s.Sync(ctx, b.path); err != nil {
			return err
		}
		_, err := s.Until(ctx, b.path, func(stat *zk.Stat) bool {
			first = cmp.Or(first, stat.Czxid)
			return stat.Czxid != first // another barrier: the one that we wait at was removed
		})
		return err
	})
	b.client.Waited(recipe, b.path, began, err)
	return err
}

func (b *Barrier) do(ctx context.Context, data []byte, attempt func(*protocol.Session) error) error {
	_, err := protocol.Persist(ctx, b.client, b.path, data, func(s *protocol.Session) (struct{}, error) {
		return struct{}{}, attempt(s)
	})
	return protocol.Wrap(recipe, b.path, err)
}

// parentOf is the path of the node above another one.
func parentOf(path string) string {
	if i := strings.LastIndexByte(path, '/'); i > 0 {
		return path[:i]
	}
	return "/"
}
