package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/doublebarrier"
	"github.com/zkrecipes/zkrecipes/election"
	"github.com/zkrecipes/zkrecipes/group"
	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/queue"
	"github.com/zkrecipes/zkrecipes/rwlock"
	"github.com/zkrecipes/zkrecipes/semaphore"
	"github.com/zkrecipes/zkrecipes/value"
)

// The exit statuses of zkr itself (see "zkr help" and docs/zkr.md). 64 to 77 are from sysexits.h,
// 124 to 127 from timeout(1) and shells.
const (
	exitUsage       = 64
	exitUnreachable = 69
	exitFailed      = 70
	exitUnknown     = 74
	exitBusy        = 75
	exitLost        = 76
	exitRefused     = 77
	exitCertificate = 78
	exitTimedOut    = 124
	exitCannotRun   = 126
	exitNotFound    = 127
	exitSignal      = 128 // plus the number of the signal
)

// errWaited is the cause of a context that ended with --wait.
var errWaited = errors.New("--wait has passed")

// errBusy is the cause of a context that ended with --wait 0.
var errBusy = errors.New("not free, and --wait is 0")

// An exitError is an error with its exit status. Without an error it's the exit status of a
// command, and nothing is printed.
type exitError struct {
	status int
	err    error
	signal os.Signal // the signal that ended the command or the wait, or nil
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit status %d", e.status)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// usage turns err into an error of usage, which the user must correct.
func usage(err error) error { return &exitError{exitUsage, err, nil} }

// usagef returns an error of usage. Its line says what is wrong and what to do.
func usagef(format string, args ...any) error { return usage(fmt.Errorf(format, args...)) }

// exitStatus returns the exit status for err and prints err.
func (a *app) exitStatus(err error) int {
	if err == nil {
		return 0
	}

	status := statusOf(err)
	if status == exitBusy {
		status = cmp.Or(a.busy, exitBusy)
	}

	var exit *exitError
	if errors.As(err, &exit) {
		a.interrupted = exit.signal == os.Interrupt
		if exit.err == nil {
			return status
		}
	}

	// A bad command line gets a hint. A bad argument says itself what to do.
	line := err.Error()
	if status == exitUsage && !a.began {
		line += `; see "zkr help"`
	}

	a.complain(line)
	return status
}

// statusOf returns the exit status for err.
func statusOf(err error) int {
	var exit *exitError
	switch {
	case errors.As(err, &exit):
		return exit.status
	case isAny(err, zk.ErrInvalidPath, protocol.ErrTooLarge, semaphore.ErrPermits, doublebarrier.ErrSize):
		return exitUsage
	case isAny(err, zk.ErrNoAuth, zk.ErrAuthFailed, zk.ErrInvalidACL, lock.ErrNotRevocable):
		return exitRefused
	case isAny(err, lock.ErrLocked, rwlock.ErrLocked, semaphore.ErrNoPermit, queue.ErrEmpty, queue.ErrFull,
		group.ErrNameTaken, doublebarrier.ErrFull, election.ErrNoLeader, value.ErrUnset, errBusy):
		return exitBusy
	case isAny(err, context.DeadlineExceeded, errWaited):
		return exitTimedOut
	case errors.Is(err, protocol.ErrLost):
		return exitLost
	}
	return exitFailed
}

func isAny(err error, targets ...error) bool {
	return slices.ContainsFunc(targets, func(target error) bool { return errors.Is(err, target) })
}
