//go:build unix

package guard

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// A Command is what is to be run.
type Command struct {
	Path           string   // of the program
	Args           []string // with the name of the program first
	Env            []string
	Stdin          io.Reader
	Stdout, Stderr io.Writer

	Grace time.Duration // between SIGTERM and SIGKILL
}

// A Process is a command that runs under a guard.
type Process struct {
	cmd      *exec.Cmd
	requests *os.File
	events   chan Event
	pid      int // of the command, once it has started
}

// An Event is something that has happened to a Process. Gone comes last.
type Event struct {
	Kind   EventKind
	Status syscall.WaitStatus // of Exited
	Signal syscall.Signal     // of Stopped
	Err    error              // of Failed
	PID    int                // of Started and Stuck
}

// An EventKind is the kind of an Event.
type EventKind int

// The kinds of events.
const (
	Started EventKind = iota + 1 // the command runs
	Failed                       // the command could not be started
	Stopped                      // the command was stopped, by SIGTSTP for example
	Doubted                      // trust runs out, so the command is being ended
	Exited                       // the command has ended. What it has left behind ends now
	Stuck                        // a process does not end, though it was killed
	Gone                         // nothing is left of the command
)

// guards are the process IDs of the guards of this process.
var guards = struct {
	sync.RWMutex
	live map[int]bool
}{live: make(map[int]bool)}

// Start starts a guard, which runs the command. It must be gone at the time until, unless Trust
// sets a later one. Start does not wait for the command to start.
func Start(c Command, until time.Time) (*Process, error) {
	if err := adopt(); err != nil {
		return nil, fmt.Errorf("become a subreaper: %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	if runtime.GOOS == "linux" {
		self = "/proc/self/exe" // also when the file was replaced meanwhile
	}

	requestsIn, requests, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer requestsIn.Close()
	status, statusOut, err := os.Pipe()
	if err != nil {
		requests.Close()
		return nil, err
	}
	defer statusOut.Close()

	p := &Process{requests: requests, events: make(chan Event, 8)}
	p.cmd = &exec.Cmd{
		Path:        self,
		Args:        append([]string{name, strconv.FormatInt(int64(c.Grace), 10), c.Path}, c.Args...),
		Env:         c.Env,
		Stdin:       c.Stdin,
		Stdout:      c.Stdout,
		Stderr:      c.Stderr,
		ExtraFiles:  []*os.File{requestsIn, statusOut},
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true}, // out of reach of the terminal
		WaitDelay:   time.Second,
	}
	if err := p.startGuard(); err != nil {
		requests.Close()
		status.Close()
		return nil, fmt.Errorf("start %s: %w", filepath.Base(self), err)
	}
	p.Trust(until)
	go p.follow(status)
	return p, nil
}

func (p *Process) startGuard() error {
	guards.Lock()
	defer guards.Unlock()

	if err := p.cmd.Start(); err != nil {
		return err
	}
	guards.live[p.cmd.Process.Pid] = true
	return nil
}

// Events returns a channel of what happens. It is closed after Gone.
func (p *Process) Events() <-chan Event { return p.events }

// Trust lets the command run until then. It does not block, and is safe for concurrent use, as all
// methods are.
func (p *Process) Trust(until time.Time) { p.request(trusted, at(until)) }

// Signal sends a signal to the command's process group.
func (p *Process) Signal(s syscall.Signal) { p.request(signal, int64(s)) }

// End sends SIGTERM to the command and all its descendants, and SIGKILL after the grace.
func (p *Process) End() { p.request(end, 0) }

// Kill kills the command and all its descendants.
func (p *Process) Kill() { p.request(kill, 0) }

// Abandon kills the guard, for one that does not do its work, and what it was to kill. Gone comes
// once that is done. A guard that cannot be killed has ended.
func (p *Process) Abandon() { _ = p.cmd.Process.Kill() }

// request sends a record. A guard that does not read for minutes is one that Abandon is for.
func (p *Process) request(k kind, value int64) {
	_ = p.requests.SetWriteDeadline(time.Now().Add(10 * time.Millisecond))
	_ = record{k, value}.writeTo(p.requests)
}

// follow turns what the guard says into events.
func (p *Process) follow(status *os.File) {
	defer close(p.events)
	defer p.requests.Close()
	defer status.Close()

	over := false // the command has ended, or never began
	clean := false
	for {
		r, err := readRecord(status)
		if err != nil {
			break
		}
		switch r.kind {
		case started:
			p.pid = int(r.value)
			p.events <- Event{Kind: Started, PID: p.pid}
		case failed:
			over, clean = true, true
			p.events <- Event{Kind: Failed, Err: syscall.Errno(r.value)}
		case stopped:
			p.events <- Event{Kind: Stopped, Signal: syscall.Signal(r.value)}
		case doubted:
			p.events <- Event{Kind: Doubted}
		case exited:
			over = true
			p.events <- Event{Kind: Exited, Status: syscall.WaitStatus(r.value)}
		case gone:
			clean = true
		case stuck:
			p.events <- Event{Kind: Stuck, PID: int(r.value)}
		}
	}

	// The guard's error says nothing: it is about copying the standard streams, if it is not nil.
	_ = p.cmd.Wait()
	if !clean {
		p.sweep()
	}
	guards.Lock()
	delete(guards.live, p.cmd.Process.Pid)
	guards.Unlock()

	if !over {
		p.events <- Event{Kind: Exited, Status: syscall.WaitStatus(syscall.SIGKILL)}
	}
	p.events <- Event{Kind: Gone}
}

// sweep kills what a guard that was killed has left behind, and what are children of ours now.
// Other guards look after their own.
func (p *Process) sweep() {
	guards.RLock()
	defer guards.RUnlock()

	began, told := clock(), false
	for {
		left := signalAll(p.pid, os.Getpid(), func(pid int) bool { return guards.live[pid] }, syscall.SIGKILL)
		if len(left) == 0 {
			return
		}
		if !told && clock()-began > int64(stuckAfter) {
			told = true
			p.events <- Event{Kind: Stuck, PID: left[0]}
		}
		time.Sleep(retry)
	}
}
