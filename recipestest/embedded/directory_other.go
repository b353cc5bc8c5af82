//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd || windows)

package embedded

import (
	"errors"
	"io"
	"path/filepath"
)

var errLocked = errors.New("locked")

// lockFile locks nothing, because these systems have no locks that end with their process.
func lockFile(string) (io.Closer, error) { return io.NopCloser(nil), nil }

// lockDirectory locks a directory by a file in it.
func lockDirectory(path string) (io.Closer, error) { return lockFile(filepath.Join(path, lockName)) }

// syncDirectory does nothing, because few of these systems allow it.
func syncDirectory(string) error { return nil }
