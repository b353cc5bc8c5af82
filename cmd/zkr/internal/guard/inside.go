//go:build unix

package guard

import (
	"bytes"
	"errors"
	"math"
	"os"
	ossignal "os/signal"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// name tells a guard from zkr: it's the first argument of the process.
	name = "zkr-guard"

	// tick limits how late a guard acts after the machine has slept (timers stop meanwhile).
	tick = 200 * time.Millisecond

	// retry is the pause before remaining processes are killed again. The first hasty rounds have
	// no pause: a process that forks and exits in a loop can only be killed while it's there.
	retry = 5 * time.Millisecond
	hasty = 200

	// stuckAfter is how long a kill may take before zkr is informed.
	stuckAfter = time.Second
)

// Main runs the guard if this process was started as a guard. In that case it does not return. Call
// it first in main.
func Main() {
	if len(os.Args) < 5 || os.Args[0] != name {
		return
	}

	grace, err := strconv.ParseInt(os.Args[1], 10, 64)
	first, err2 := strconv.Atoi(os.Args[2])
	if err != nil || err2 != nil {
		os.Exit(2)
	}

	g := &inside{
		grace: grace, cgroup: cgroup(os.Args[3]), status: os.NewFile(uintptr(first+1), "status"),
		killAt: math.MaxInt64, termAt: math.MaxInt64,
	}
	rename()
	// Close both pipes on exec because the command must not inherit them.
	syscall.CloseOnExec(first)
	syscall.CloseOnExec(first + 1)
	g.run(os.NewFile(uintptr(first), "requests"), os.Args[4:])
	os.Exit(0)
}

// An inside is the state of a guard in its own process.
type inside struct {
	grace  int64
	cgroup cgroup // of the command, if there is one
	status *os.File

	pid     int     // of the command and of its process group
	termAt  instant // when to send SIGTERM
	killAt  instant // when to send SIGKILL
	ending  bool    // something else than the end of trust ends the command, or zkr knows already
	termed  bool
	killing instant // when the killing began
	kills   int
	told    bool // zkr knows that a process is stuck
}

// A change says that a child of the guard ended or stopped.
type change struct {
	pid    int
	status syscall.WaitStatus
}

func (g *inside) run(pipe *os.File, argv []string) {
	// The kernel kills the command when this thread dies, so the thread must last.
	runtime.LockOSThread()
	ignoreSignals()
	defer g.cgroup.remove()
	zkr := os.Getppid()
	shell := parentOf(zkr)
	if err := adopt(); err != nil {
		g.tell(Failed, int64(syscall.ENOSYS))
		return
	}

	// The first record has the end of trust. If it doesn't come, zkr has died.
	first, err := readRecord(pipe)
	if err != nil || first.Kind != trusted || first.Value-g.grace <= clock() {
		g.tell(Failed, int64(syscall.ECANCELED))
		return
	}
	g.trust(first.Value)

	if err := g.start(argv); err != nil {
		errno := syscall.ENOEXEC
		errors.As(err, &errno)
		g.tell(Failed, int64(errno))
		return
	}

	g.tell(Started, int64(g.pid))
	g.watch(pipe, reap())

	// If zkr stopped itself just as its shell ended, it would stay stopped: the kernel continues an
	// orphaned group only if all its threads have stopped by then.
	if os.Getppid() == zkr && parentOf(zkr) != shell {
		_ = syscall.Kill(zkr, syscall.SIGCONT) // it may have ended
	}
}

// readable sends a channel when there's something to read, and looks again once the receiver closes
// that channel.
func readable(fd int) <-chan chan struct{} {
	news := make(chan chan struct{})
	go func() {
		for {
			poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
			if _, err := unix.Poll(poll, -1); err == unix.EINTR {
				continue
			}
			read := make(chan struct{})
			news <- read
			<-read
		}
	}()
	return news
}

// drain acts on all waiting requests, so that the newest request decides. It returns false once zkr
// has died.
func (g *inside) drain(fd int) bool {
	for {
		var b [size]byte
		switch n, err := syscall.Read(fd, b[:]); {
		case err == syscall.EAGAIN: // the pipe is empty
			return true
		case err == syscall.EINTR:
		case n < size:
			g.request(record{Kind: end})
			return false
		default:
			r, _ := readRecord(bytes.NewReader(b[:])) // it has all of it
			g.request(r)
		}
	}
}

// start starts the command in a process group of its own.
func (g *inside) start(argv []string) error {
	attr := &syscall.SysProcAttr{Setpgid: true}
	dieWith(attr)

	return g.cgroup.start(attr, func() (err error) {
		g.pid, err = syscall.ForkExec(argv[0], argv[1:], &syscall.ProcAttr{
			Env:   os.Environ(),
			Files: []uintptr{0, 1, 2},
			Sys:   attr,
		})
		return err
	})
}

// ignoreSignals keeps this process alive. A channel that nobody reads does that: SIG_IGN would be
// inherited by the command.
func ignoreSignals() {
	for _, s := range []os.Signal{
		syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGTSTP,
	} {
		if !ossignal.Ignored(s) {
			ossignal.Notify(make(chan os.Signal, 1), s)
		}
	}
}

// reap waits for all children (adopted children too) and sends each change. It closes the channel
// once there are no children.
func reap() <-chan change {
	changes := make(chan change)
	go func() {
		defer close(changes)
		for {
			var c change
			var err error
			switch c.pid, err = syscall.Wait4(-1, &c.status, syscall.WUNTRACED, nil); err {
			case nil:
				changes <- c
			case syscall.EINTR:
			default:
				return
			}
		}
	}()
	return changes
}

// watch ends the command when it must, and returns when no descendant is left.
func (g *inside) watch(pipe *os.File, changes <-chan change) {
	defer runtime.KeepAlive(pipe)

	fd := int(pipe.Fd())
	_ = syscall.SetNonblock(fd, true) // can't fail for an open pipe
	news, alive := readable(fd), true
	timer := time.NewTimer(0)
	for {
		var read chan struct{}
		select {
		case read = <-news:
		case c, ok := <-changes:
			if !ok {
				changes = nil // the guard has no child left
			}
			g.changed(c)
		case <-timer.C:
		}

		// If this process was paused, newer requests can be waiting.
		if alive {
			if alive = g.drain(fd); !alive {
				news = nil
			} else if read != nil {
				close(read)
			}
		}

		if changes == nil && len(descendants(g.pid, os.Getpid(), nil)) == 0 {
			g.tell(Gone, 0)
			return
		}

		timer.Reset(min(g.act(), tick))
	}
}

func (g *inside) request(r record) {
	switch r.Kind {
	case trusted:
		g.trust(r.Value)
	case signal:
		_ = syscall.Kill(-g.pid, syscall.Signal(r.Value)) // it may have ended
	case end:
		g.end(g.grace)
	case kill:
		g.end(0)
	}
}

// trust sets the time until which the command may run.
func (g *inside) trust(until instant) {
	// An end that was decided stays decided, even if the pipe has newer trust.
	if g.termed || g.ending {
		g.killAt = min(g.killAt, until)
		return
	}
	g.killAt, g.termAt = until, until-g.grace
}

// end ends the command: SIGTERM now, and SIGKILL after grace (in nanoseconds).
func (g *inside) end(grace int64) {
	now := clock()
	g.ending = true
	g.killAt = min(g.killAt, now+grace)
	g.termAt = min(g.termAt, now)
}

// changed handles a change of a child. If the command has ended, its background processes end too.
func (g *inside) changed(c change) {
	switch {
	case c.pid != g.pid:
	case c.status.Stopped():
		g.tell(Stopped, int64(c.status.StopSignal()))
	default:
		g.tell(Exited, int64(c.status))
		g.end(g.grace)
	}
}

// act sends the signals that are due, and returns how long nothing is due.
func (g *inside) act() time.Duration {
	now := clock()
	switch {
	case now >= g.killAt:
		g.doubt()
		g.killAll(now)
		if g.kills++; g.kills < hasty {
			return 0
		}

		return retry
	case now >= g.termAt && !g.termed:
		g.doubt()
		g.termed = true
		g.killAt = min(g.killAt, now+g.grace)
		signalAll(g.pid, os.Getpid(), nil, syscall.SIGTERM)
		signalAll(g.pid, os.Getpid(), nil, syscall.SIGCONT) // a stopped process can't handle SIGTERM
	}

	if g.termed {
		return time.Duration(g.killAt - now)
	}
	return time.Duration(g.termAt - now)
}

// doubt reports to zkr that the command ends because trust ends.
func (g *inside) doubt() {
	if !g.ending {
		g.ending = true
		g.tell(Doubted, 0)
	}
}

func (g *inside) killAll(now instant) {
	g.cgroup.kill()
	left := signalAll(g.pid, os.Getpid(), nil, syscall.SIGKILL)

	if g.killing == 0 {
		g.killing = now
	}

	if !g.told && now-g.killing > int64(stuckAfter) && len(left) > 0 {
		g.told = true
		g.tell(Stuck, int64(left[0]))
	}
}

// signalAll sends a signal to all descendants of root (except those below skip) and returns the
// descendants that are still alive. SIGKILL also goes to their process groups: it hits a whole
// group at one moment, so a process can't escape by forking.
func signalAll(group, root int, skip func(int) bool, s syscall.Signal) (alive []int) {
	all := descendants(group, root, skip)

	groups := make(map[int]bool)
	for _, p := range all {
		if s == syscall.SIGKILL && isOurs(p, group, all) {
			groups[p.group] = true
		}

		if !p.dead {
			alive = append(alive, p.pid)
			_ = syscall.Kill(p.pid, s) // it may have ended; the next round finds it if not
		}
	}

	for g := range groups {
		_ = syscall.Kill(-g, s) // as above
	}
	return alive
}

// isOurs reports whether a process group has only descendants: it is the command's group, or a
// descendant leads the group or its session.
func isOurs(p process, command int, all []process) bool {
	if p.group <= 1 || p.group == command { // a process that has just ended has no group
		return p.group > 1
	}
	if own, err := unix.Getsid(0); err == nil && p.session != own {
		return true
	}
	return slices.ContainsFunc(all, func(other process) bool { return other.pid == p.group })
}

// tell sends zkr an event, if zkr is still there.
func (g *inside) tell(k Kind, value int64) { _ = record{k, value}.writeTo(g.status) }
