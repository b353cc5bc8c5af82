package embedded

import (
	"strings"
	"unicode/utf8"
)

// validPath reports whether path is a valid path of a znode.
func validPath(path string) bool {
	if path == "" || path[0] != '/' {
		return false
	}
	if path == "/" {
		return true
	}

	for name := range strings.SplitSeq(path[1:], "/") {
		if name == "" || name == "." || name == ".." {
			return false
		}
	}

	for _, r := range path {
		if !validRune(r) {
			return false
		}
	}
	return true
}

// validRune reports whether a path can contain r. It refuses control characters, surrogates, the
// private use area, the specials and everything outside the basic plane. (Broken UTF-8 decodes to
// the replacement character, which is one of the specials.)
func validRune(r rune) bool {
	switch {
	case r <= 0x1f, r >= 0x7f && r <= 0x9f, r >= 0xd800 && r <= 0xf8ff, r >= 0xfff0:
		return false
	}
	return r != utf8.RuneError
}

// parentOf returns the parent's path. ok is false if path has no slash or has a zero byte. The
// parent of a top-level node is the empty path, another name of the root.
func parentOf(path string) (parent string, ok bool) {
	i := strings.LastIndexByte(path, '/')
	if i < 0 || strings.IndexByte(path, 0) >= 0 {
		return "", false
	}
	return path[:i], true
}

// systemPath reports whether path is a node that clients may not delete.
func systemPath(path string) bool {
	switch path {
	case "/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config":
		return true
	}
	return false
}
