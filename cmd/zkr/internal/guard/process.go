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

	"golang.org/x/sys/unix"
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
	Kind  Kind
	Value int64 // see the kinds
}

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

	files := inherited()
	p := &Process{requests: requests, events: make(chan Event, 8)}
	p.cmd = &exec.Cmd{
		Path: self, Env: c.Env, Stdin: c.Stdin, Stdout: c.Stdout, Stderr: c.Stderr,
		Args:        append([]string{name, strconv.FormatInt(int64(c.Grace), 10), strconv.Itoa(3 + len(files)), c.Path}, c.Args...),
		ExtraFiles:  append(files[:len(files):len(files)], requestsIn, statusOut),
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true}, // out of reach of the terminal
		WaitDelay:   time.Second,
	}
	guards.Lock()
	if err = p.cmd.Start(); err == nil {
		guards.live[p.cmd.Process.Pid] = true
	}
	guards.Unlock()
	if err != nil {
		requests.Close()
		status.Close()
		return nil, fmt.Errorf("start %s: %w", filepath.Base(self), err)
	}
	p.Trust(until)
	go p.follow(status)
	return p, nil
}

// inherited returns the descriptors from 3 on that this process was started with, for the command to
// have them, too: a jobserver of make, or sockets of systemd. Those that are none are nil.
var inherited = sync.OnceValue(func() (files []*os.File) {
	entries, _ := os.ReadDir("/dev/fd") // without it, there are none to be found
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil || fd < 3 {
			continue
		}
		// All that were opened since are closed on exec.
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			files = append(files, make([]*os.File, max(fd-2-len(files), 0))...)
			files[fd-3] = os.NewFile(uintptr(fd), e.Name())
		}
	}
	return files
})

// Events returns a channel of what happens. It is closed after Gone.
func (p *Process) Events() <-chan Event { return p.events }

// Trust lets the command run until then. It does not block, and is safe for concurrent use, as all
// methods are.
func (p *Process) Trust(until time.Time) { p.request(trusted, at(until)) }

// Signal sends a signal to the command's process group.
func (p *Process) Signal(s syscall.Signal) { p.request(signal, int64(s)) }

// Kill kills the command and all its descendants.
func (p *Process) Kill() { p.request(kill, 0) }

// Abandon kills the guard, for one that does not do its work, and what it was to kill. Gone comes
// once that is done. A guard that cannot be killed has ended.
func (p *Process) Abandon() { _ = p.cmd.Process.Kill() }

// request sends a record. A guard that does not read for minutes is one that Abandon is for.
func (p *Process) request(k Kind, value int64) {
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
		switch r.Kind {
		case Gone:
			clean = true
			continue
		case Started:
			p.pid = int(r.Value)
		case Failed:
			over, clean = true, true
		case Exited:
			over = true
		}
		p.events <- Event(r)
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
		p.events <- Event{Exited, int64(syscall.SIGKILL)}
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
		isGuard := func(pid int) bool { return guards.live[pid] }
		left := append(signalAll(p.pid, os.Getpid(), isGuard, syscall.SIGKILL), unreaped(isGuard)...)
		if len(left) == 0 {
			return
		}
		if !told && clock()-began > int64(stuckAfter) {
			told = true
			p.events <- Event{Stuck, int64(left[0])}
		}
		time.Sleep(retry)
	}
}
