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

// rename gives this process a name for listings of processes (it runs as /proc/self/exe).
func rename() { _ = os.WriteFile("/proc/self/comm", []byte(name), 0) }

// adopt makes this process the parent of descendants whose own parents die.
func adopt() error { return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// dieWith makes the kernel kill a child when this process dies.
func dieWith(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }

// Usable returns an error if a process's descendants can't be found here.
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

// A process is the kernel's record of a descendant.
type process struct {
	pid, parent, group, session int
	dead                        bool // it is a zombie
}

// descendants returns the processes below root, without those below skip.
func descendants(_, root int, skip func(pid int) bool) (all []process) {
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
	return all
}

// unreaped returns the children of this process except those that skip selects. It reaps children
// that have ended. If it returns none, no adopted process is left.
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

// childrenOf returns the children of a process (zombies too). The kernel answers that fast enough
// to catch a process that forks and exits in a loop.
func childrenOf(pid int) (all []int) {
	dir := "/proc/" + strconv.Itoa(pid) + "/task/"
	tasks, _ := os.ReadDir(dir) // fails if the process is gone
	for _, task := range tasks {
		text, _ := os.ReadFile(dir + task.Name() + "/children") // as above
		for _, field := range strings.Fields(string(text)) {
			if child, err := strconv.Atoi(field); err == nil {
				all = append(all, child)
			}
		}
	}
	return all
}

// parentOf returns the parent of a process, or 0.
func parentOf(pid int) int {
	p, _ := stat(pid)
	return p.parent
}

// stat returns the record of a process, unless the process is gone.
func stat(pid int) (p process, ok bool) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return p, false
	}

	// The program's name is in parentheses and can contain anything (even parentheses).
	var state string
	p.pid = pid
	n, _ := fmt.Sscan(string(text[bytes.LastIndexByte(text, ')')+1:]), &state, &p.parent, &p.group, &p.session)
	p.dead = state == "Z" || state == "X"
	return p, n == 4
}
