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

// A Command is a program with its arguments and streams.
type Command struct {
	Path           string   // the file of the program
	Args           []string // with the program's name first
	Env            []string
	Stdin          io.Reader
	Stdout, Stderr io.Writer

	Grace time.Duration // the time between SIGTERM and SIGKILL
}

// A Process is a command that runs under a guard.
type Process struct {
	cmd      *exec.Cmd
	requests *os.File
	cgroup   cgroup
	events   chan Event
	pid      int // the command's process ID, once it has started
}

// An Event is a change of a Process. Gone is the last event.
type Event struct {
	Kind  Kind
	Value int64 // its meaning depends on Kind
}

// guards has the process IDs of all guards that this process started.
var guards = struct {
	sync.RWMutex
	live map[int]bool
}{live: make(map[int]bool)}

// Start starts a guard, which starts the command. The guard kills the command at until unless Trust
// sets a later time. Start does not wait for the command to start.
func Start(c Command, until time.Time) (*Process, error) {
	if err := adopt(); err != nil {
		return nil, fmt.Errorf("become a subreaper: %w", err)
	}

	self, err := os.Executable()
	if err != nil {
		return nil, err
	}

	if runtime.GOOS == "linux" {
		self = "/proc/self/exe" // works even if the file was replaced (by an upgrade, say)
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

	// The command inherits the descriptors under the same numbers. The guard's own pipes come
	// behind them.
	files := inherited()
	p := &Process{requests: requests, cgroup: newCgroup(), events: make(chan Event, 8)}
	p.cmd = &exec.Cmd{
		Path: self, Env: c.Env, Stdin: c.Stdin, Stdout: c.Stdout, Stderr: c.Stderr,
		Args:        append([]string{name, strconv.FormatInt(int64(c.Grace), 10), strconv.Itoa(3 + len(files)), string(p.cgroup), c.Path}, c.Args...),
		ExtraFiles:  append(files[:len(files):len(files)], requestsIn, statusOut),
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true}, // out of reach of the terminal
		WaitDelay:   time.Second,
	}

	// The lock keeps sweep from taking the new guard for an orphan.
	guards.Lock()
	if err = p.cmd.Start(); err == nil {
		guards.live[p.cmd.Process.Pid] = true
	}

	guards.Unlock()
	if err != nil {
		p.cgroup.remove()
		requests.Close()
		status.Close()
		return nil, fmt.Errorf("start %s: %w", filepath.Base(self), err)
	}

	p.Trust(until)
	go p.follow(status)
	return p, nil
}

// inherited returns the descriptors from 3 on that this process was started with. The command
// inherits them (a jobserver of make, say, or sockets of systemd). Gaps are nil.
var inherited = sync.OnceValue(func() (files []*os.File) {
	entries, _ := os.ReadDir("/dev/fd") // without it, none can be found
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil || fd < 3 {
			continue
		}
		// Descriptors that Go opened are closed on exec.
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			files = append(files, make([]*os.File, max(fd-2-len(files), 0))...)
			files[fd-3] = os.NewFile(uintptr(fd), e.Name())
		}
	}
	return files
})

// Events returns a channel of events. It is closed after Gone.
func (p *Process) Events() <-chan Event { return p.events }

// Trust lets the command run until then. It does not block. All methods are safe for concurrent
// use.
func (p *Process) Trust(until time.Time) { p.request(trusted, at(until)) }

// Signal sends a signal to the command's process group.
func (p *Process) Signal(s syscall.Signal) { p.request(signal, int64(s)) }

// Kill kills the command and all its descendants.
func (p *Process) Kill() { p.request(kill, 0) }

// Abandon kills a guard that doesn't do its work, and then everything that the guard should have
// killed. Gone comes once that's done. If the guard can't be killed, it has ended.
func (p *Process) Abandon() { _ = p.cmd.Process.Kill() }

// request sends a record. If a guard doesn't read for minutes, the pipe is full and Abandon is
// needed.
func (p *Process) request(k Kind, value int64) {
	_ = p.requests.SetWriteDeadline(time.Now().Add(10 * time.Millisecond))
	_ = record{k, value}.writeTo(p.requests)
}

// follow turns the guard's records into events.
func (p *Process) follow(status *os.File) {
	defer close(p.events)
	defer p.requests.Close()
	defer status.Close()

	over := false // the command has ended or never began
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

	// Wait's error doesn't matter: it's about copying the standard streams.
	_ = p.cmd.Wait()

	// The guard was killed, so its children are ours now.
	if !clean {
		p.sweep()
		p.cgroup.remove()
	}

	guards.Lock()
	delete(guards.live, p.cmd.Process.Pid)
	guards.Unlock()

	if !over {
		p.events <- Event{Exited, int64(syscall.SIGKILL)}
	}
	p.events <- Event{Kind: Gone}
}

// sweep kills the processes that a killed guard left behind (they are children of this process
// now). It leaves other guards and their descendants alone.
func (p *Process) sweep() {
	guards.RLock()
	defer guards.RUnlock()

	began, told := clock(), false
	for {
		isGuard := func(pid int) bool { return guards.live[pid] }
		p.cgroup.kill()
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
