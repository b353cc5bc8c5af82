package barrier

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// ErrEphemeral is returned by [Barrier.Set] if the barrier is set but falls with the wrong session:
// with another session, which lives, or with this client's own session although the Barrier was
// made without [WithEphemeral].
var ErrEphemeral = errors.New("set, but falls with another session")

// A Barrier is set, waited at and removed by any number of processes. It is safe for concurrent
// use.
//
// The algorithm is the barrier of the ZooKeeper documentation's recipes: the barrier is set while a
// node exists, and waiters watch that node. [Barrier.Remove] describes what makes a late removal
// harmless.
type Barrier struct {
	recipe    *recipe.Recipe
	data      []byte
	ephemeral bool
}

// An Option shapes a barrier; give it to [New].
type Option func(*Barrier) error

// WithData stores data in the barrier's node whenever the barrier is set, for other clients to
// read. Data and path together may have [recipe.MaxData] bytes; [Barrier.Set] returns
// [protocol.ErrTooLarge] for more. The caller must not change the slice afterwards.
func WithData(data []byte) Option {
	return func(b *Barrier) error {
		b.data = data
		return nil
	}
}

// WithEphemeral makes [Barrier.Set] set a barrier that falls when its setter's session ends. So a
// setter that dies does not keep the waiters waiting. See [protocol.Session] for when a session
// ends, and [Barrier.Set] for a setter that is started again. A barrier that was set without this
// option still doesn't fall.
//
// Set creates a second node beside the barrier (see [Barrier.Remove]). If another library or an
// operator deletes the barrier, that node stays until the next Remove or the session's end.
func WithEphemeral() Option {
	return func(b *Barrier) error {
		b.ephemeral = true
		return nil
	}
}

// New returns the barrier at path, whose parents are created as needed. New does no I/O and cannot
// fail: the first call reports a nil client, a bad path or a bad option.
func New(c *protocol.Client, path string, opts ...Option) *Barrier {
	b := &Barrier{recipe: recipe.New(c, "barrier", path)}
	recipe.Configure(b.recipe, b, opts)
	return b
}

// Set sets the barrier. If the barrier is set already, it gets the new data and otherwise stays as
// it is. The request of an earlier removal that has not arrived yet no longer has an effect. (A
// [Barrier.Remove] that still waits for an answer looks again.)
//
// When Set returns nil, the barrier falls only with the client's present session (without
// [WithEphemeral] it falls with no session). So if Set finds another session's ephemeral barrier,
// it waits until that barrier is gone and then sets its own. A process that was started again waits
// for its former session to expire in this way. Callers of [Barrier.Wait] return when the old
// barrier falls.
//
// If the old barrier is still there after two session timeouts of this client, its setter is alive
// (or has a longer timeout) and Set returns an error that wraps [ErrEphemeral]. Set returns that
// error at once if the barrier falls with this client's session, and this Barrier was made without
// WithEphemeral.
//
// Otherwise Set blocks until the server has answered. If a session is lost, it goes on in the next
// session. If ctx ends first, Set returns an error that wraps ctx's, and the barrier may be set now
// or later. Other errors wrap [protocol.ErrClosed], [protocol.ErrTooLarge] or [zk.ErrInvalidPath]
// or are the server's own (such as [zk.ErrNoAuth]).
//
// [zk.ErrInvalidPath]: https://pkg.go.dev/github.com/go-zookeeper/zk#ErrInvalidPath
// [zk.ErrNoAuth]: https://pkg.go.dev/github.com/go-zookeeper/zk#ErrNoAuth
func (b *Barrier) Set(ctx context.Context) error {
	if err := b.recipe.Validate(b.data); err != nil {
		return b.recipe.Wrap(err)
	}

	var deadline time.Time // for another session to end
	return b.acrossSessions(ctx, func(s *recipe.Session) error {
		for {
			other, err := b.set(ctx, s)
			if err != nil || other == nil {
				return err
			}

			if deadline.IsZero() {
				deadline = time.Now().Add(2 * s.Timeout())
			}
			if err := b.awaitFall(ctx, s, other, deadline); err != nil {
				return err
			}
		}
	})
}

// set creates the barrier or replaces its data. It returns the Stat of a barrier that falls with
// another session.
func (b *Barrier) set(ctx context.Context, s *recipe.Session) (other *zk.Stat, err error) {
	for {
		err := b.create(ctx, s)
		if errors.Is(err, zk.ErrNoNode) {
			if _, err := s.EnsurePath(ctx, path.Dir(b.recipe.Path())); err != nil {
				return nil, err
			}
			continue
		} else if !errors.Is(err, zk.ErrNodeExists) {
			return nil, err
		}

		// It is set already. Removals that have read the old version fail from now on.
		stat, err := s.Set(ctx, b.recipe.Path(), b.data, -1)
		switch {
		case errors.Is(err, zk.ErrNoNode):
			continue
		case err != nil:
			return nil, err
		case stat.EphemeralOwner == 0:
			return nil, nil
		case stat.EphemeralOwner != s.ID():
			return stat, nil
		case !b.ephemeral:
			return nil, ErrEphemeral
		}
		return nil, nil
	}
}

func (b *Barrier) create(ctx context.Context, s *recipe.Session) error {
	if !b.ephemeral {
		return s.Create(ctx, b.recipe.Path(), b.data, zk.FlagPersistent)
	}
	node := s.Path(b.recipe.Path())
	_, err := recipe.Do(ctx, s, func(c *zk.Conn) ([]zk.MultiResponse, error) {
		// Attempts have different IDs because a late one can be executed after the barrier of the
		// last attempt was removed.
		id := b.idPath(s.NewOwner())
		return recipe.Multi(c,
			&zk.CreateRequest{Path: node, Data: b.data, Acl: s.ACL(b.recipe.Path()), Flags: zk.FlagEphemeral},
			&zk.CreateRequest{Path: s.Path(id), Acl: s.ACL(id), Flags: zk.FlagEphemeral})
	})
	return err
}

// awaitFall waits until a barrier of another session is gone. After the deadline it returns an
// error that wraps ErrEphemeral.
func (b *Barrier) awaitFall(ctx context.Context, s *recipe.Session, other *zk.Stat, deadline time.Time) error {
	limited, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()

	_, err := s.WaitNode(limited, b.recipe.Path(), func(stat *zk.Stat) bool { return stat.Czxid != other.Czxid })
	if err != nil && limited.Err() != nil && ctx.Err() == nil && s.Err() == nil {
		return fmt.Errorf("%w: %#x", ErrEphemeral, uint64(other.EphemeralOwner))
	}
	return err
}

// Wait blocks until the barrier is not set. It returns at once if the barrier is not set (or if its
// parents don't exist). Otherwise it returns when the barrier is removed or falls. If a session is
// lost, Wait goes on in the next session.
//
// If ctx ends first, Wait returns an error that wraps ctx's. Other errors wrap [protocol.ErrClosed]
// or [zk.ErrInvalidPath] or are the server's own (such as [zk.ErrNoAuth]).
//
// [zk.ErrInvalidPath]: https://pkg.go.dev/github.com/go-zookeeper/zk#ErrInvalidPath
// [zk.ErrNoAuth]: https://pkg.go.dev/github.com/go-zookeeper/zk#ErrNoAuth
func (b *Barrier) Wait(ctx context.Context) error {
	if err := b.recipe.ValidateCall(ctx, nil); err != nil {
		return err
	}

	began, first := time.Now(), int64(0)
	var in *recipe.Session
	b.recipe.Waiting(ctx)
	err := b.acrossSessions(ctx, func(s *recipe.Session) error {
		in = s
		// A removal that the caller knows about must be visible here, too.
		if err := s.Sync(ctx, b.recipe.Path()); err != nil {
			return err
		}

		for {
			w := s.Watch(b.recipe.Path())
			same, err := w.Current(ctx)
			if errors.Is(err, zk.ErrNoNode) {
				return nil
			} else if err != nil {
				return err
			} else if !same {
				continue
			}

			stat, err := w.Ready(ctx)
			if err != nil {
				return err
			}
			first = cmp.Or(first, stat.Czxid)
			if stat.Czxid != first { // another barrier: the first one was removed
				return nil
			}
			if err := s.WaitAny(ctx, w); err != nil || w.Deleted() {
				return err
			}
		}
	})
	b.recipe.Waited(ctx, began, in, 0, err)
	return err
}

func (b *Barrier) acrossSessions(ctx context.Context, attempt func(*recipe.Session) error) error {
	_, err := recipe.AcrossSessions(ctx, b.recipe, func(s *recipe.Session) (struct{}, error) {
		return struct{}{}, attempt(s)
	})
	return b.recipe.Wrap(err)
}
