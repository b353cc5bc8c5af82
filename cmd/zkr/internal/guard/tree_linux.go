package guard

import (
	"bytes"
	"fmt"
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

// Usable returns an error where the descendants of a process cannot be found.
func Usable() error {
	self, err := os.Readlink("/proc/self")
	if err != nil {
		return fmt.Errorf("without /proc no command is run, as what it starts could not be found: %w", err)
	}
	if self != strconv.Itoa(os.Getpid()) {
		return fmt.Errorf("/proc is of other processes (it says %s for process %d), so what a command starts could not be found: mount one, as unshare --mount-proc does",
			self, os.Getpid())
	}
	if _, err := os.Stat("/proc/thread-self/children"); err != nil {
		return fmt.Errorf("this kernel does not tell the children of a process, so what a command starts could not be found: %w", err)
	}
	return nil
}

// groupLeft reports whether a process of the group is left that is no child of ours. None is.
func groupLeft(int) bool { return false }

// A process is what is known of a descendant.
type process struct {
	pid, group, session int
	dead                bool // a zombie
}

// descendants returns the processes below root, but not those below skip.
func descendants(root int, skip func(pid int) bool) (all []process, known bool) {
	var walk func(pid int)
	walk = func(pid int) {
		for _, child := range childrenOf(pid) {
			if skip != nil && skip(child) {
				continue
			}
			if p, ok := stat(child); ok {
				all = append(all, p)
			}
			walk(child)
		}
	}
	walk(root)
	return all, true
}

// unreaped returns the children of this process, but not those that skip says yes to. It waits for
// those that have ended. If there are none, nothing is left of what was adopted.
func unreaped(skip func(pid int) bool) (left []int) {
	for _, pid := range childrenOf(os.Getpid()) {
		if skip(pid) {
			continue
		}
		if reaped, _ := syscall.Wait4(pid, nil, syscall.WNOHANG, nil); reaped != pid {
			left = append(left, pid)
		}
	}
	return left
}

// childrenOf returns the children of a process, zombies included. That is so quick that a process
// which forks and ends over and over is met soon.
func childrenOf(pid int) (all []int) {
	dir := "/proc/" + strconv.Itoa(pid) + "/task/"
	tasks, _ := os.ReadDir(dir) // without any, it is gone
	for _, task := range tasks {
		text, _ := os.ReadFile(dir + task.Name() + "/children") // likewise
		for _, field := range strings.Fields(string(text)) {
			if child, err := strconv.Atoi(field); err == nil {
				all = append(all, child)
			}
		}
	}
	return all
}

// stat returns what is known of a process, unless it is gone.
func stat(pid int) (p process, ok bool) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return p, false
	}
	// The name of the program, in parentheses, may contain anything.
	var state string
	var parent int
	p.pid = pid
	n, _ := fmt.Sscan(string(text[bytes.LastIndexByte(text, ')')+1:]), &state, &parent, &p.group, &p.session)
	p.dead = state == "Z" || state == "X"
	return p, n == 4
}
