//go:build unix

package main

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// monotonic reads the clock that all processes of the machine share. It goes on while a process is
// stopped. (time.Now won't do: another process can't use its monotonic reading, and the wall clock
// can be set.)
func monotonic() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err)
	}
	return t.Nano()
}

func stop(p *os.Process) error { return p.Signal(syscall.SIGSTOP) }
func cont(p *os.Process) error { return p.Signal(syscall.SIGCONT) }

// quit makes a Go program print its goroutines and end.
func quit(p *os.Process) error { return p.Signal(syscall.SIGQUIT) }
