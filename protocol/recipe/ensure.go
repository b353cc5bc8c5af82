package recipe

import (
	"context"
	"errors"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/conn"
	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/internal/zkwire"
)

// EnsurePath creates the node at path and all missing nodes above it (the chroot included) with the
// view's ACL for each. They are containers (which the server deletes some time after their last
// child), or persistent nodes if the server has no containers. EnsurePath reports whether this call
// created the node at path.
//
// A node that exists now can be gone at the next moment, so callers create their child in a loop
// around it. EnsurePath blocks until the server has answered, ctx ends or the session ends. It
// returns the errors of [Do] and the server's own errors (such as [zk.ErrNoAuth]). It is safe for
// concurrent use.
func (s *Session) EnsurePath(ctx context.Context, path string) (created bool, err error) {
	return s.ensure(ctx, s.Path(path))
}

func (s *Session) ensure(ctx context.Context, path string) (created bool, err error) {
	if s.bound.Existing && len(path) <= len(s.bound.Chroot) {
		return false, s.bound.NoChroot()
	}

	acl := s.bound.View.ACL(s.bound.Relative(path))

	for {
		// Usually only the last node is missing, so begin with it.
		_, err := Do(ctx, s, func(c *zk.Conn) (string, error) {
			if !s.bound.NoContainers.Load() {
				made, err := Create(c, path, nil, zk.FlagContainer, acl)
				if conn.ServerCode(err) != zkwire.CodeUnimplemented {
					return made, err
				}
				s.bound.NoContainers.Store(true) // before ZooKeeper 3.5
			}

			return Create(c, path, nil, zk.FlagPersistent, acl)
		})

		switch {
		case err == nil:
			return true, nil
		case errors.Is(err, zk.ErrNodeExists):
			return false, nil
		case !errors.Is(err, zk.ErrNoNode) || path == "/":
			return false, err
		}

		if _, err := s.ensure(ctx, layout.Parent(path)); err != nil {
			return false, err
		}
	}
}
