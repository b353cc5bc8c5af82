//go:build unix

package main

import (
	"os"
	ossignal "os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A terminal is the terminal that zkr was started from. The command's process group is in its
// background until the command wants to read from it.
type terminal struct {
	file *os.File // nil if there is none
	lent bool     // the command has the foreground
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

// lend moves a process group to the foreground and reports whether it is there. It does nothing if
// zkr is in the background itself.
func (t *terminal) lend(group int) bool {
	if t.file == nil {
		return false
	}

	// A zkr in the background must not take the terminal from another job.
	foreground, err := unix.IoctlGetInt(int(t.file.Fd()), unix.TIOCGPGRP)
	if err != nil || foreground != unix.Getpgrp() {
		return false
	}

	t.lent = t.setForeground(group)
	return t.lent
}

// takeBack moves zkr's own process group to the foreground.
func (t *terminal) takeBack() {
	if t.lent {
		t.lent = false
		t.setForeground(unix.Getpgrp())
	}
}

func (t *terminal) setForeground(group int) bool {
	// The kernel stops a background process with SIGTTOU if it does this.
	ossignal.Ignore(syscall.SIGTTOU)
	defer ossignal.Reset(syscall.SIGTTOU)
	return unix.IoctlSetPointerInt(int(t.file.Fd()), unix.TIOCSPGRP, group) == nil
}

// suspend stops zkr and the rest of its process group until a shell continues them. If no shell
// could do that (the group is orphaned), the kernel drops the signal, and suspend soon returns.
func suspend() {
	continued := make(chan os.Signal, 1)
	ossignal.Notify(continued, syscall.SIGCONT)
	defer ossignal.Stop(continued)

	// SIGSTOP would stop an orphaned group for ever. SIGTSTP would not, but os/signal can't give it
	// back its default action.
	// The group always has this process, so the call cannot fail.
	_ = syscall.Kill(0, syscall.SIGTTIN)

	// If zkr stops, no time passes here. If the signal was dropped, nothing continues zkr either.
	select {
	case <-continued:
	case <-time.After(100 * time.Millisecond):
	}
}
