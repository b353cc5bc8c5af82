//go:build unix

package main

import (
	"context"
	"fmt"
	"os"
	ossignal "os/signal"
	"syscall"
	"time"
)

// forwarded are the signals that a command gets that zkr gets. Those that are ignored from the
// start, as under nohup, stay ignored in both.
var forwarded = []os.Signal{
	syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM,
	syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH, syscall.SIGTSTP,
}

// signals are those that zkr gets. While it waits they end the wait, and then they are forwarded.
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

// raiseInterrupt ends zkr by SIGINT, unless that is ignored or blocked since the start.
func raiseInterrupt() {
	if ossignal.Ignored(os.Interrupt) {
		return
	}
	ossignal.Reset(os.Interrupt)
	_ = syscall.Kill(os.Getpid(), syscall.SIGINT) // a process may always signal itself

	// Another thread may get the signal, later than this one goes on. It ends the sleep with the
	// process. Nothing tells that the signal is blocked, so the sleep has an end.
	time.Sleep(10 * time.Second)
}

// outlivePipes makes a write to a pipe that nobody reads an error, and not the end of zkr. Commands
// that are run do not inherit that.
func outlivePipes() { ossignal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }

func (s signals) stop() { ossignal.Stop(s) }

// ends reports whether a signal ends a wait.
func ends(s os.Signal) bool {
	return s == syscall.SIGHUP || s == syscall.SIGINT || s == syscall.SIGQUIT || s == syscall.SIGTERM
}

// endedBy returns the error of a zkr that a signal has ended.
func endedBy(s os.Signal) error {
	return &exitError{exitSignal + int(s.(syscall.Signal)), fmt.Errorf("ended by a signal: %v", s), s}
}

// ending returns a context that a signal ends. Call end when the wait is over: it returns the
// signal, if there was one.
func (s signals) ending(ctx context.Context) (_ context.Context, end func() error) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop, stopped := make(chan struct{}), make(chan error, 1)

	go func() {
		for {
			select {
			case got := <-s:
				if ends(got) {
					err := endedBy(got)
					cancel(err)
					stopped <- err
					return
				}
				if got == syscall.SIGTSTP {
					suspend()
				}

			case <-stop:
				stopped <- nil
				return
			}
		}
	}()

	return ctx, func() error {
		close(stop)
		err := <-stopped
		cancel(nil)
		return err
	}
}
