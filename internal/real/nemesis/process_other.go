//go:build !unix

package main

import (
	"errors"
	"os"
)

var errNotUnix = errors.New("the nemesis needs a Unix, for the signals that stop a process")

func monotonic() int64         { panic(errNotUnix) }
func stop(p *os.Process) error { return errNotUnix }
func cont(p *os.Process) error { return errNotUnix }
func quit(p *os.Process) error { return errNotUnix }
