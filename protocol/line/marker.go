package line

import (
	"context"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// A holder of an exclusive kind knows that nothing is ahead of it. The transaction in which it
// releases says so with its node's marker. A waiter that hears of that knows that everything up to
// that node is gone, and for good, as numbers only grow.
//
// Only the release of a node makes its marker. A contender that dies, gives up or is broken leaves
// none, and no other client makes up for that: what a client has read about the node of another
// contender may be out of date, and a write would make others believe it.

// ReleaseOps returns the operations, with absolute paths, that delete the node of a holder of an
// exclusive kind, and tell the waiters in the same transaction that nothing is ahead of it.
func ReleaseOps(s *recipe.Session, path string) []any {
	marker := path + recipe.MarkerSuffix
	return []any{
		&zk.CreateRequest{Path: s.Path(marker), Acl: s.ACL(marker), Flags: zk.FlagEphemeral},
		&zk.DeleteRequest{Path: s.Path(marker), Version: -1},
		&zk.DeleteRequest{Path: s.Path(path), Version: -1},
	}
}

// Release deletes the node of a holder of an exclusive kind with [ReleaseOps]. It returns
// [zk.ErrNoNode] if another client had deleted it. Where the marker cannot be made, because an ACL
// forbids it or a foreign node has its name, the node alone is deleted. Call it in work of
// [recipe.Detach].
func Release(ctx context.Context, s *recipe.Session, path string) error {
	return s.DeleteWith(ctx, path, func(c *zk.Conn) error {
		_, err := recipe.Multi(c, ReleaseOps(s, path)...)
		return err
	})
}
