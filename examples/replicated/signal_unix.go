//go:build unix

package main

import "syscall"

// Signals that stop and continue a process.
const (
	sigStop     = syscall.SIGSTOP
	sigContinue = syscall.SIGCONT
)
