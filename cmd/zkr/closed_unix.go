//go:build unix

package main

import (
	"os"

	"golang.org/x/sys/unix"
)

// isClosed reports whether a stream was closed when zkr started. The runtime then opens the null
// device in its place, to read and write. (A shell's >/dev/null opens it only to write.)
func isClosed(stream any) bool {
	file, ok := stream.(*os.File)
	if !ok {
		return false
	}

	// Compare the devices: /dev/null can have other names.
	var opened, null unix.Stat_t
	if unix.Fstat(int(file.Fd()), &opened) != nil || unix.Stat(os.DevNull, &null) != nil {
		return false
	}

	flags, err := unix.FcntlInt(file.Fd(), unix.F_GETFL, 0)
	return err == nil && flags&unix.O_ACCMODE == unix.O_RDWR &&
		opened.Mode&unix.S_IFMT == unix.S_IFCHR && opened.Rdev == null.Rdev
}
