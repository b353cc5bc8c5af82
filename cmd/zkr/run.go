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

// Times before the end of trust, as shares of the session timeout T. Trust ends T/12 before the
// servers can expire the session, but clocks at different rates can use up that margin. So the
// command is killed before trust ends.
const (
	killShare    = 24 // the guard kills the command T/24 before trust ends
	abandonShare = 48 // zkr kills the command and its guard T/48 before trust ends
	renewShare   = 16 // the guard gets new trust every T/16
)

var errDoubted = errors.New("no server has confirmed the session for too long")

// A job is a program that runs while zkr holds something.
type job struct {
	app      *app
	client   *protocol.Client
	held     held
	session  *protocol.Session
	process  *guard.Process
	terminal *terminal

	pid    int                 // the program's process ID and process group
	status *syscall.WaitStatus // the program's status, once it has ended
	failed error               // why the program could not start
	lost   error               // why zkr ended the program
	stuck  bool
}

// runHeld runs a program while h is held, and returns once no process of it is left. It returns an
// exitError with the program's status unless that is 0.
func (a *app) runHeld(
	ctx context.Context, client *protocol.Client, h held, p program, signals signals, stdin io.Reader,
) error {
	// The client has one session at a time. If h is still held after this call, it belongs to that
	// session.
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

	a.announceHold(client, h, heldNow, 0)
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

// killAt returns when the program must be dead if no server answers any more.
func (j *job) killAt() time.Time {
	return j.session.Deadline().Add(-j.session.Timeout() / killShare)
}

// follow handles events until no process of the program is left.
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
				return // the guard keeps trying
			}
		case s := <-signals:
			j.process.Signal(s.(syscall.Signal))
		case <-revoked:
			revoked = nil
			j.process.Signal(syscall.SIGTERM)
			j.app.note("%s is asked back: the command has got SIGTERM", j.held.path)
			// The revocation can replace the node's data. Write it again so that ps shows the
			// holder.
			j.app.announceHold(j.client, j.held, func(o *survey.Owner) { o.AskedBack = time.Now().UTC() }, -1)
		case <-done:
			done = nil
		case <-timer.C:
		}

		// Handling an event can take time, so renew trust after each event.
		timer.Reset(j.renew())
	}
}

// event handles an event of the guard.
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

		// If the hold was lost first, the loss is the result.
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

// suspended handles a stop of the program. If the program wants to read from the terminal, it gets
// the terminal. If the user stopped it from the terminal, zkr stops too, so that the shell notices.
func (j *job) suspended(by syscall.Signal) {
	switch by {
	case syscall.SIGTTIN, syscall.SIGTTOU:
		if j.terminal.lend(j.pid) {
			j.process.Signal(syscall.SIGCONT)
			return
		}
	case syscall.SIGTSTP:
	default:
		return // whoever stopped the program continues it
	}

	if j.terminal.file == nil {
		return // without a terminal no shell would continue zkr
	}

	// Stop with the terminal as the shell expects it, and lend it again afterwards.
	lent := j.terminal.lent
	j.terminal.takeBack()
	suspend()
	if lent {
		j.terminal.lend(j.pid)
	}
	j.process.Signal(syscall.SIGCONT)
}

// renew sends the guard the end of trust, and returns when to do that again.
func (j *job) renew() time.Duration {
	timeout := j.session.Timeout()
	if err := j.held.err(); err != nil && j.status == nil {
		j.lose(err)
	}

	if j.lost == nil {
		j.process.Trust(j.killAt())
	}

	// The guard should have killed the program by now.
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

// lose ends the program for good. If the hold is lost, another client can have it at this moment,
// so the program is killed at once.
func (j *job) lose(err error) {
	if j.lost != nil {
		return
	}
	j.lost = err
	if j.held.err() != nil {
		// The guard can be stopped, so kill it too if it doesn't act.
		j.process.Kill()
		time.AfterFunc(j.session.Timeout()/abandonShare, j.process.Abandon)
	}
}

// outcome returns the result of the program as an error.
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
