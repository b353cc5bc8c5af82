//go:build unix

package main

import (
	"context"
	"fmt"
	"os"
	ossignal "os/signal"
	"sync"
	"syscall"
	"time"
)

// forwarded are the signals that zkr forwards to its command. Signals that are ignored from the
// start (as under nohup) stay ignored in both.
var forwarded = []os.Signal{
	syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM,
	syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH, syscall.SIGTSTP,
}

// signals receives the signals of zkr. A signal ends a wait. While a command runs, it is forwarded.
type signals chan os.Signal

func listen() signals {
	outlivePipes()
	s := make(signals, 16)
	for _, sig := range forwarded {
		if !ossignal.Ignored(sig) {
			ossignal.Notify(s, sig)
		}
	}
	return s
}

// raiseInterrupt ends zkr by SIGINT, unless SIGINT was ignored or blocked from the start.
func raiseInterrupt() {
	if ossignal.Ignored(os.Interrupt) {
		return
	}

	ossignal.Reset(os.Interrupt)
	_ = syscall.Kill(os.Getpid(), syscall.SIGINT) // a process may always signal itself

	// Another thread can get the signal, and this thread goes on until the process has ended. The
	// sleep is limited because the signal can be blocked.
	time.Sleep(10 * time.Second)
}

// outlivePipes turns SIGPIPE into an error of the write. Commands that zkr runs don't inherit that.
func outlivePipes() { ossignal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }

func (s signals) stop() { ossignal.Stop(s) }

// ends reports whether a signal ends a wait.
func ends(s os.Signal) bool {
	return s == syscall.SIGHUP || s == syscall.SIGINT || s == syscall.SIGQUIT || s == syscall.SIGTERM
}

// endedBy returns the error for a zkr that a signal ended.
func endedBy(s os.Signal) error {
	return &exitError{exitSignal + int(s.(syscall.Signal)), fmt.Errorf("ended by a signal: %v", s), s}
}

// ending returns a context that a signal ends. The caller must call end after the wait: it returns
// an error if a signal ended the wait.
func (s signals) ending(ctx context.Context) (_ context.Context, end func() error) {
	ctx, cancel := context.WithCancelCause(ctx)
	var interrupted error
	var listening sync.WaitGroup
	listening.Go(func() {
		for {
			select {
			case got := <-s:
				if ends(got) {
					interrupted = endedBy(got)
					cancel(interrupted)
					return
				} else if got == syscall.SIGTSTP { // Ctrl-Z stops a wait like any other program
					suspend()
				}
			case <-ctx.Done():
				return
			}
		}
	})

	return ctx, func() error {
		cancel(nil)
		listening.Wait()
		return interrupted
	}
}
