package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// detach keeps Ctrl-C from a child, because the parent ends the child itself.
func detach(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
}

// cpuTime returns the processor time of a process so far, to within a few hundredths of a second.
func cpuTime(pid int) time.Duration {
	if pid == 0 {
		return 0
	}

	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}

	// The command's name stands in parentheses and can contain spaces, so begin after it.
	_, fields, _ := strings.Cut(string(stat), ") ")
	var user, system int64
	var skip string
	in := strings.NewReader(fields)
	// The user and system times are fields 14 and 15, and the first field after the name is the
	// third.
	for range 11 {
		fmt.Fscan(in, &skip)
	}

	fmt.Fscan(in, &user, &system)
	// Linux reports these times in hundredths of a second (USER_HZ).
	const tick = 10 * time.Millisecond
	return time.Duration(user+system) * tick
}
