package protocol

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/zkwire"
)

// MaxData is the most data, in bytes, that a recipe puts into one request, its path included. A
// server with the default jute.maxbuffer accepts a little more and cuts the connection at what
// exceeds that.
const MaxData = 1_000_000

// besideData is more than a request has besides a path, the data and an ACL: the name of a node,
// mostly.
const besideData = 512

// ValidatePath returns an error that wraps [zk.ErrInvalidPath] unless path is one that a server
// would accept: absolute, without empty, "." or ".." parts, without a slash at its end and without
// the characters that ZooKeeper forbids. It does no I/O and is safe for concurrent use.
func ValidatePath(path string) error {
	invalid := func(why string) error { return fmt.Errorf("%w: %q %s", zk.ErrInvalidPath, path, why) }
	switch {
	case path == "":
		return fmt.Errorf("%w: empty", zk.ErrInvalidPath)
	case path[0] != '/':
		return invalid("is not absolute")
	case path == "/":
		return nil
	case !utf8.ValidString(path):
		return invalid("is not UTF-8")
	}
	for part := range strings.SplitSeq(path[1:], "/") {
		switch part {
		case "":
			return invalid("has an empty part")
		case ".", "..":
			return invalid("is relative")
		}
		for _, r := range part {
			if r <= 0x1f || r >= 0x7f && r <= 0x9f || r >= 0xd800 && r <= 0xf8ff || r >= 0xfff0 {
				return invalid(fmt.Sprintf("has the forbidden character %U", r))
			}
		}
	}
	return nil
}

// validate is what every recipe asks of its client, its path and its data before any I/O.
func validate(c *Client, path string, data []byte) error {
	if c == nil {
		return errors.New("nil client")
	}
	if err := ValidatePath(path); err != nil {
		return err
	}
	if path == "/" {
		return fmt.Errorf("%w: a recipe needs a path below the root", zk.ErrInvalidPath)
	}
	n := len(c.chroot) + len(path) + len(data)
	if n > MaxData {
		return fmt.Errorf("%w: %d bytes with the path, at most %d", ErrTooLarge, n, MaxData)
	}
	if n += aclSize(c.acl(path)) + besideData; n > maxRequest {
		return fmt.Errorf("%w: %d bytes with the path and the ACL, at most %d", ErrTooLarge, n, maxRequest)
	}
	return nil
}

// parentOf is the path of the node above an absolute path other than "/".
func parentOf(path string) string {
	if i := strings.LastIndexByte(path, '/'); i > 0 {
		return path[:i]
	}
	return "/"
}

// EnsurePath creates the node at path and all that is missing above it, the chroot included, with
// the view's ACL for each: as containers, which the server removes some time after their last child
// went, or as persistent nodes where the server has no containers. It reports whether it was this
// call that created the node at path.
//
// A node that exists now may be gone at the next moment, so callers create their child in a loop
// around it. EnsurePath blocks until the server has answered, ctx ends or the session is lost;
// besides the errors of [Do] it returns the server's own, such as [zk.ErrNoAuth]. It is safe for
// concurrent use.
func (s *Session) EnsurePath(ctx context.Context, path string) (created bool, err error) {
	return s.ensure(ctx, s.Path(path))
}

func (s *Session) ensure(ctx context.Context, path string) (created bool, err error) {
	acl := s.client.acl(s.relative(path))
	for {
		_, err := Do(ctx, s, func(c *zk.Conn) (string, error) {
			if s.hasContainers() {
				made, err := Create(c, path, nil, zk.FlagContainer, acl)
				if serverCode(err) != zkwire.CodeUnimplemented {
					return made, err
				}
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
		if _, err := s.ensure(ctx, parentOf(path)); err != nil {
			return false, err
		}
	}
}

// hasContainers reports whether the servers have containers, as far as this session knows.
func (s *session) hasContainers() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.limits.plain
}
