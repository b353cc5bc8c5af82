package recipe

import (
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/conn"
	"github.com/zkrecipes/zkrecipes/internal/layout"
	"github.com/zkrecipes/zkrecipes/internal/session"
	"github.com/zkrecipes/zkrecipes/protocol"
)

// MaxData is the most data (in bytes, with its path) that a recipe puts into one request, unless
// [protocol.WithRequestLimit] sets another limit. A server with the default jute.maxbuffer accepts
// a little more and cuts the connection at a larger request.
const MaxData = 1_000_000

// besideData is more than a request has besides a path, the data and an ACL (mostly the name of a
// node).
const besideData = 512

// ValidatePath returns an error that wraps [zk.ErrInvalidPath] unless a server would accept path.
// It must be absolute and must not end with a slash. Its parts must not be empty, "." or "..". It
// must not have the characters that ZooKeeper forbids. ValidatePath does no I/O and is safe for
// concurrent use.
func ValidatePath(path string) error { return layout.ValidatePath(path) }

// validate checks a recipe's client, path and data before any I/O.
func validate(c *session.Access, path string, data []byte) (err error) {
	if c == nil {
		return session.ErrNoClient
	}
	if err := layout.ValidatePath(path); err != nil {
		return err
	}
	if path == "/" {
		return fmt.Errorf("%w: a recipe needs a path below the root", zk.ErrInvalidPath)
	}
	if layout.Reserved(c.Chroot + path) {
		return fmt.Errorf("%w: %q is reserved for ZooKeeper itself", zk.ErrInvalidPath, path)
	}

	n := len(c.Chroot) + len(path) + len(data)
	if n > MaxData && c.Limit == conn.DefaultLimit {
		return fmt.Errorf("%w: %d bytes with the path, at most %d", protocol.ErrTooLarge, n, MaxData)
	}
	if n += session.ACLSize(c.View.ACL(path)) + besideData; n > c.Limit {
		return fmt.Errorf("%w: %d bytes with the path and the ACL, at most %d", protocol.ErrTooLarge, n, c.Limit)
	}

	return nil
}
