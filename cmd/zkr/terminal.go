//go:build unix

package main

import (
	"os"
	ossignal "os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// A terminal is the one that zkr was started from. A command has a process group of its own, which
// is in the background of the terminal until it wants to read from it.
type terminal struct {
	file *os.File // nil if there is none
	lent bool     // to the command
}

func openTerminal() *terminal {
	file, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return &terminal{}
	}
	return &terminal{file: file}
}

func (t *terminal) close() {
	t.takeBack()
	if t.file != nil {
		t.file.Close()
	}
}

// closed reports whether there was a terminal, and zkr has lost it.
func (t *terminal) closed() bool {
	if t.file == nil {
		return false
	}
	_, err := unix.IoctlGetInt(int(t.file.Fd()), unix.TIOCGPGRP)
	return err != nil
}

// lend makes a process group the foreground one, and reports whether it is. It does not do so if
// zkr is in the background itself.
func (t *terminal) lend(group int) bool {
	if t.file == nil {
		return false
	}
	foreground, err := unix.IoctlGetInt(int(t.file.Fd()), unix.TIOCGPGRP)
	if err != nil || foreground != unix.Getpgrp() {
		return false
	}
	t.lent = t.setForeground(group)
	return t.lent
}

// takeBack makes zkr's own process group the foreground one again.
func (t *terminal) takeBack() {
	if t.lent {
		t.lent = false
		t.setForeground(unix.Getpgrp())
	}
}

func (t *terminal) setForeground(group int) bool {
	// A process in the background is stopped by this signal when it does this.
	ossignal.Ignore(syscall.SIGTTOU)
	defer ossignal.Reset(syscall.SIGTTOU)
	return unix.IoctlSetPointerInt(int(t.file.Fd()), unix.TIOCSPGRP, group) == nil
}

// suspend stops zkr, and what else is in its process group, until it is continued.
func suspend() {
	continued := make(chan os.Signal, 1)
	ossignal.Notify(continued, syscall.SIGCONT)
	defer ossignal.Stop(continued)

	_ = syscall.Kill(0, syscall.SIGSTOP)
	<-continued
}
