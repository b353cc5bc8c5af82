//go:build !unix

package main

import "syscall"

// There is no such thing here, as whoever tries is told.
const (
	sigStop     = syscall.Signal(-1)
	sigContinue = syscall.Signal(-2)
)
