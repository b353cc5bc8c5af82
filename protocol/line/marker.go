package line

import (
	"context"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// No contender is ahead of a holder of an exclusive kind. The transaction that releases its node
// says so with a marker. When a waiter gets the marker's event, everything up to that node is gone
// for good (because numbers only grow).
//
// Only the release of a node makes its marker. A contender that dies, gives up or is broken leaves
// none. No other client may make it. It could have read about that node at a server that lags, and
// waiters would believe the write.

// ReleaseOps returns operations (with absolute paths) that delete the node of a holder of an
// exclusive kind. The same transaction tells the waiters that no contender was ahead of the holder.
func ReleaseOps(s *recipe.Session, path string) []any {
	marker := path + recipe.MarkerSuffix
	return []any{
		&zk.CreateRequest{Path: s.Path(marker), Acl: s.ACL(marker), Flags: zk.FlagEphemeral},
		&zk.DeleteRequest{Path: s.Path(marker), Version: -1},
		&zk.DeleteRequest{Path: s.Path(path), Version: -1},
	}
}

// Release deletes the node of a holder of an exclusive kind with [ReleaseOps]. If the marker can't
// be made (an ACL forbids it, or a foreign node has its name), Release deletes only the holder's
// node. It returns [zk.ErrNoNode] if another client had deleted the node. Call it in work of
// [recipe.Detach].
func Release(ctx context.Context, s *recipe.Session, path string) error {
	return s.DeleteWith(ctx, path, func(c *zk.Conn) error {
		_, err := recipe.Multi(c, ReleaseOps(s, path)...)
		return err
	})
}
