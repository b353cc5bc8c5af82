//go:build !unix

package main

import "syscall"

// Other systems have no such signals: sending one returns an error.
const (
	sigStop     = syscall.Signal(-1)
	sigContinue = syscall.Signal(-2)
)
