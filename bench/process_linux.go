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

	_, fields, _ := strings.Cut(string(stat), ") ")
	var user, system int64
	var skip string
	in := strings.NewReader(fields)
	for range 11 {
		fmt.Fscan(in, &skip)
	}

	fmt.Fscan(in, &user, &system)
	const tick = 10 * time.Millisecond
	return time.Duration(user+system) * tick
}
