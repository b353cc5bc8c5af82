//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package embedded

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"
)

// lockDirectory locks a directory and the file of this name in it. If only the file were locked and
// an operator removed it, another server could lock a new file. (The directory itself can't be
// locked on some network file systems.)
func lockDirectory(path, name string) (io.Closer, error) {
	file, err := lockFile(filepath.Join(path, name))
	if err != nil {
		return nil, err
	}
	d, err := os.Open(path)
	if err != nil {
		file.Close()
		return nil, err
	}

	switch err := syscall.Flock(int(d.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); {
	case err == nil:
		return locks{flocked{d}, file}, nil
	case errors.Is(err, syscall.EWOULDBLOCK):
		file.Close()
		d.Close()
		return nil, errLocked
	}

	// This file system can't lock directories, so the lock of the file must do.
	d.Close()
	return file, nil
}

type locks []io.Closer

func (l locks) Close() error { return errors.Join(l[0].Close(), l[1].Close()) }

var errLocked = errors.New("locked")

// lockFile creates the file if it doesn't exist, and locks it until it is closed or the process
// ends. It returns errLocked if this process or another has locked it.
func lockFile(path string) (io.Closer, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, errLocked
		}
		return nil, &os.PathError{Op: "lock", Path: path, Err: err}
	}

	return flocked{f}, nil
}

// A flocked is a locked file.
type flocked struct{ *os.File }

// Close unlocks the file and closes it. If it were only closed, it would stay locked as long as a
// forked process (one that hasn't run its program yet) has a copy of the descriptor.
func (f flocked) Close() error {
	syscall.Flock(int(f.Fd()), syscall.LOCK_UN)
	return f.File.Close()
}

// rename renames an open file, and returns it.
func rename(file *os.File, path string) (*os.File, error) { return file, os.Rename(file.Name(), path) }

// syncDirectory returns once the names of the files in a directory have reached the disk.
func syncDirectory(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
