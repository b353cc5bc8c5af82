//go:build unix && !linux

package guard

import (
	"syscall"

	"golang.org/x/sys/unix"
)

const clockID = unix.CLOCK_MONOTONIC

func rename() {} // it has the name of the file

func adopt() error { return nil }

func dieWith(*syscall.SysProcAttr) {}

// groupLeft reports whether a process of the group is left, a child of ours or not.
func groupLeft(group int) bool { return group > 0 && syscall.Kill(-group, 0) != syscall.ESRCH }

// A process is what is known of a descendant.
type process struct {
	pid, group, session int
	dead                bool
}

// descendants finds none: the process group is all that is known here.
func descendants(int, func(int) bool) ([]process, bool) { return nil, false }

// Usable returns nil: the process group can be ended.
func Usable() error { return nil }

// unreaped finds none: nothing is adopted here.
func unreaped(func(int) bool) []int { return nil }
