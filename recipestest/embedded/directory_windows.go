package embedded

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"
)

var errLocked = errors.New("locked")

// errSharingViolation is Windows' error for a file that a process has opened exclusively.
const errSharingViolation syscall.Errno = 32

// lockFile creates the file if it doesn't exist, and opens it exclusively until it is closed or the
// process ends. It returns errLocked if this process or another has opened it.
func lockFile(path string) (io.Closer, error) {
	name, err := syscall.UTF16PtrFromString(path)
	if err != nil {
		return nil, &os.PathError{Op: "lock", Path: path, Err: err}
	}
	h, err := syscall.CreateFile(name, syscall.GENERIC_READ|syscall.GENERIC_WRITE, 0, nil,
		syscall.OPEN_ALWAYS, syscall.FILE_ATTRIBUTE_NORMAL, 0)
	if errors.Is(err, errSharingViolation) {
		return nil, errLocked
	}

	if err != nil {
		return nil, &os.PathError{Op: "lock", Path: path, Err: err}
	}
	return os.NewFile(uintptr(h), path), nil
}

// lockDirectory locks a directory by the file of this name in it.
func lockDirectory(path, name string) (io.Closer, error) { return lockFile(filepath.Join(path, name)) }

// rename renames an open file, and returns it. Windows renames no open files.
func rename(file *os.File, path string) (*os.File, error) {
	if err := errors.Join(file.Close(), os.Rename(file.Name(), path)); err != nil {
		return nil, err
	}
	return os.OpenFile(path, os.O_RDWR, 0)
}

// syncDirectory does nothing: Windows keeps the names of files in the journal of its file system.
func syncDirectory(string) error { return nil }
