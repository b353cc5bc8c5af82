//go:build unix

package main

import "syscall"

// What has a process stand still, and run on.
const (
	sigStop     = syscall.SIGSTOP
	sigContinue = syscall.SIGCONT
)
