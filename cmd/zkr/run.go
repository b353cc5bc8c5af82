//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/guard"
	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/survey"
	"github.com/zkrecipes/zkrecipes/protocol"
)

// What is left of the session timeout T when things are done. Trust ends T/12 before the servers
// can expire the session, and all of that may be needed if clocks run at different rates. So the
// command is killed before trust ends.
const (
	killShare    = 24 // the command is killed T/24 before trust ends
	abandonShare = 48 // a guard that has not done so by T/48 before is killed with it
	renewShare   = 16 // the guard is told of new trust every T/16
)

var errDoubted = errors.New("no server has confirmed the session for too long")

// A job is a program that runs while something is held.
type job struct {
	app      *app
	client   *protocol.Client
	held     held
	session  *protocol.Session
	process  *guard.Process
	terminal *terminal

	pid    int                 // of the program, and its process group
	status *syscall.WaitStatus // of the program, once it has ended
	failed error               // why it could not start
	lost   error               // why it was ended
	stuck  bool
}

// runHeld runs a program while h is held, and returns once nothing is left of it. It returns an
// exitError with the program's status if that is not 0.
func (a *app) runHeld(
	ctx context.Context, client *protocol.Client, h held, p program, signals signals, stdin io.Reader,
) error {
	// At this moment the client has one session. If h is held after it, h is held in it.
	session, err := client.Session(ctx)
	if err != nil {
		return err
	}
	if err := h.err(); err != nil {
		return err
	}
	grace, err := a.graceOf(session.Timeout())
	if err != nil {
		return err
	}

	j := &job{app: a, client: client, held: h, session: session, terminal: openTerminal()}
	defer j.terminal.close()
	j.process, err = guard.Start(guard.Command{
		Path: p.path, Args: p.args, Env: a.environment(h), Stdin: stdin, Stdout: a.stdout, Stderr: a.stderr, Grace: grace,
	}, j.killAt())
	if err != nil {
		return &exitError{status: exitCannotRun, err: err}
	}
	j.follow(signals)
	return j.outcome(p)
}

// killAt returns when the program has to be gone, if nothing more is heard from the servers.
func (j *job) killAt() time.Time {
	return j.session.Deadline().Add(-j.session.Timeout() / killShare)
}

// follow looks after the program until nothing is left of it.
func (j *job) follow(signals <-chan os.Signal) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	done, revoked := j.held.done, j.held.revoked
	for {
		select {
		case e, ok := <-j.process.Events():
			if !ok {
				return
			}
			j.event(e)
			if j.stuck && j.lost != nil {
				return // the guard goes on trying
			}
		case s := <-signals:
			j.process.Signal(s.(syscall.Signal))
		case <-revoked:
			revoked = nil
			j.process.Signal(syscall.SIGTERM)
			j.app.note("%s is asked back: the command has got SIGTERM", j.held.path)
			// The revocation has replaced the data of the node: nobody would see who holds.
			j.app.announceHold(j.client, j.held, func(o *survey.Owner) { o.AskedBack = time.Now().UTC() }, -1)
		case <-done:
			done = nil
		case <-timer.C:
		}

		timer.Reset(j.renew())
	}
}

// event notes what has happened to the program.
func (j *job) event(e guard.Event) {
	switch e.Kind {
	case guard.Started:
		j.pid = int(e.Value)
	case guard.Failed:
		j.failed = syscall.Errno(e.Value)
	case guard.Doubted:
		j.lose(errDoubted)
	case guard.Exited:
		status := syscall.WaitStatus(e.Value)
		j.status = &status
		if err := j.held.err(); err != nil {
			j.lose(err)
		}
	case guard.Stuck:
		j.stuck = true
		j.app.complain(fmt.Sprintf("process %d does not end, though it was killed", e.Value))
	case guard.Stopped:
		j.suspended(syscall.Signal(e.Value))
	}
}

// suspended goes on from the moment at which the program was stopped. A program that wants to read
// from the terminal gets it. If it was stopped from the terminal, so is zkr, for the shell to see.
func (j *job) suspended(by syscall.Signal) {
	switch by {
	case syscall.SIGTTIN, syscall.SIGTTOU:
		if j.terminal.lend(j.pid) {
			j.process.Signal(syscall.SIGCONT)
			return
		}
	case syscall.SIGTSTP:
	default:
		return // by a process, which continues it
	}

	if j.terminal.file == nil {
		return // no shell would continue zkr
	}
	if j.terminal.closed() { // nor here: its shell has ended, and SIGHUP comes or has come
		j.process.Signal(syscall.SIGCONT)
		return
	}
	lent := j.terminal.lent
	j.terminal.takeBack()
	suspend()
	if lent {
		j.terminal.lend(j.pid)
	}
	j.process.Signal(syscall.SIGCONT)
}

// renew tells the guard until when there is trust, and returns when to do so again.
func (j *job) renew() time.Duration {
	timeout := j.session.Timeout()
	if err := j.held.err(); err != nil && j.status == nil {
		j.lose(err)
	}
	if j.lost == nil {
		j.process.Trust(j.killAt())
	}

	// The guard should have been in time.
	last := time.Until(j.session.Deadline().Add(-timeout / abandonShare))
	if last <= 0 {
		if j.status == nil {
			j.lose(errDoubted)
		}
		j.process.Abandon()
		return timeout / renewShare
	}
	return min(last, timeout/renewShare)
}

// lose ends the program for good. Another client may have what was held at this very moment, unless
// the guard is ahead of that.
func (j *job) lose(err error) {
	if j.lost != nil {
		return
	}
	j.lost = err
	if j.held.err() != nil {
		j.process.Kill()
		time.AfterFunc(j.session.Timeout()/abandonShare, j.process.Abandon)
	}
}

// outcome returns what the program has come to.
func (j *job) outcome(p program) error {
	switch {
	case j.lost != nil:
		return &exitError{status: exitLost, err: fmt.Errorf("%s: the command was ended: %w", j.held.path, j.lost)}
	case errors.Is(j.failed, syscall.ECANCELED):
		return &exitError{status: exitLost, err: fmt.Errorf("%s: was lost before the command has begun", j.held.path)}
	case errors.Is(j.failed, syscall.ENOENT):
		return &exitError{status: exitNotFound, err: fmt.Errorf("run %s: %w", p.path, j.failed)}
	case j.failed != nil:
		return &exitError{status: exitCannotRun, err: fmt.Errorf("run %s: %w", p.path, j.failed)}
	case j.status == nil:
		return &exitError{status: exitFailed, err: errors.New("the status of the command is unknown")}
	case j.status.Signaled():
		return &exitError{status: exitSignal + int(j.status.Signal()), signal: j.status.Signal()}
	case j.status.ExitStatus() != 0:
		return &exitError{status: j.status.ExitStatus()}
	}
	return nil
}

// canRun returns an error if commands could not be ended here.
func canRun() error { return guard.Usable() }
