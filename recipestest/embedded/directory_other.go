//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd || windows)

package embedded

import (
	"errors"
	"io"
)

var errLocked = errors.New("locked")

// lockFile locks nothing: these systems have no locks that end with their process.
func lockFile(string) (io.Closer, error) { return io.NopCloser(nil), nil }

// syncDirectory does nothing, as few of these systems allow it.
func syncDirectory(string) error { return nil }
