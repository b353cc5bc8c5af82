//go:build unix && !linux

package guard

import (
	"syscall"

	"golang.org/x/sys/unix"
)

const clockID = unix.CLOCK_MONOTONIC

func rename() {} // listings show the file's name

func adopt() error { return nil }

func dieWith(*syscall.SysProcAttr) {}

// A process is the record of descendants.
type process struct {
	pid, group, session int
	dead                bool
}

// descendants returns what is left of the process group, because only that is known here. A
// negative process ID means a group.
func descendants(group, _ int, _ func(int) bool) []process {
	if group > 0 && syscall.Kill(-group, 0) != syscall.ESRCH {
		return []process{{pid: -group}}
	}
	return nil
}

// Usable returns nil because the process group can be ended.
func Usable() error { return nil }

// parentOf returns 0 because nothing tells the parent here.
func parentOf(int) int { return 0 }

// A cgroup is nothing because this system has no control groups.
type cgroup string

func newCgroup() cgroup { return "" }

func (cgroup) start(_ *syscall.SysProcAttr, start func() error) error { return start() }

func (cgroup) kill() {}

func (cgroup) remove() {}

// unreaped finds none because nothing is adopted here.
func unreaped(func(int) bool) []int { return nil }
