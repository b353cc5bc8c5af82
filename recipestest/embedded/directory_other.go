//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd || windows)

package embedded

import (
	"errors"
	"io"
	"os"
	"path/filepath"
)

var errLocked = errors.New("locked")

// lockFile locks nothing, because these systems have no locks that end with their process.
func lockFile(string) (io.Closer, error) { return io.NopCloser(nil), nil }

// lockDirectory locks a directory by the file of this name in it.
func lockDirectory(path, name string) (io.Closer, error) { return lockFile(filepath.Join(path, name)) }

// rename renames an open file, and returns it.
func rename(file *os.File, path string) (*os.File, error) { return file, os.Rename(file.Name(), path) }

// syncDirectory does nothing, because few of these systems allow it.
func syncDirectory(string) error { return nil }
