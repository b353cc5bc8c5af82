package layout

import (
	"fmt"
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/go-zookeeper/zk"
)

// ValidatePath returns an error that wraps [zk.ErrInvalidPath] unless a server would accept path. A
// valid path is absolute, has no empty, "." or ".." parts, no slash at its end and none of the
// characters that ZooKeeper forbids. It does no I/O and is safe for concurrent use.
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
	case strings.Contains(path, "//"):
		return invalid(`has "//"`)
	case strings.HasSuffix(path, "/"):
		return invalid("ends with a slash")
	}

	for part := range strings.SplitSeq(path[1:], "/") {
		if part == "." || part == ".." {
			return invalid(fmt.Sprintf("has a part %q", part))
		}

		// The same ranges as in ZooKeeper's PathUtils.
		for _, r := range part {
			if r <= 0x1f || r >= 0x7f && r <= 0x9f || r >= 0xd800 && r <= 0xf8ff || r >= 0xfff0 {
				return invalid(fmt.Sprintf("has the forbidden character %U", r))
			}
		}
	}
	return nil
}

// Reserved reports whether a path (with its chroot) belongs to ZooKeeper itself.
func Reserved(path string) bool {
	return path == "/zookeeper" || strings.HasPrefix(path, "/zookeeper/")
}

// Parent is the path of the node above an absolute path other than "/".
func Parent(path string) string {
	if i := strings.LastIndexByte(path, '/'); i > 0 {
		return path[:i]
	}
	return "/"
}

// Escape turns any text (a key, for example) into a valid name of a node.
func Escape(text string) string {
	name := url.PathEscape(text)

	// Servers refuse these two names.
	if name == "." || name == ".." {
		name = "%2E" + name[1:]
	}
	return name
}

// Unescape returns the text that was given to Escape.
func Unescape(name string) string {
	if text, err := url.PathUnescape(name); err == nil {
		return text
	}
	return name
}
