package guard

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

const clockID = unix.CLOCK_BOOTTIME

// rename gives this process a name that listings of processes show, as it runs /proc/self/exe.
func rename() { _ = os.WriteFile("/proc/self/comm", []byte(name), 0) }

// adopt makes this process the parent of its descendants whose own parents die.
func adopt() error { return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// dieWith makes the kernel kill a child when this process dies.
func dieWith(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }

// groupLeft reports whether a process of the group is left that is no child of ours. None is.
func groupLeft(int) bool { return false }

// descendants returns the processes below root that are not zombies, but not those below skip. It
// returns false where they are not known.
func descendants(root int, skip func(pid int) bool) ([]int, bool) {
	entries, err := os.ReadDir("/proc")
	if err != nil || len(entries) == 0 {
		return nil, false
	}
	children := make(map[int][]int)
	dead := make(map[int]bool)
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue // it is gone
		}
		// The name of the program, in parentheses, may contain anything.
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if len(fields) < 2 {
			continue
		}
		parent, err := strconv.Atoi(fields[1])
		if err != nil {
			continue
		}
		children[parent] = append(children[parent], pid)
		dead[pid] = fields[0] == "Z" || fields[0] == "X"
	}

	var all []int
	var walk func(pid int)
	walk = func(pid int) {
		for _, child := range children[pid] {
			if skip != nil && skip(child) {
				continue
			}
			if !dead[child] {
				all = append(all, child)
			}
			walk(child)
		}
	}
	walk(root)
	return all, len(dead) > 0
}
