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
	// name is how a guard is told from zkr, by the name that it was started with.
	name = "zkr-guard"

	// tick bounds how late a guard acts after the machine has slept, as timers stop meanwhile.
	tick = 200 * time.Millisecond

	// retry is how often processes are killed that are still there. For so many times there is no
	// pause: a process that forks and ends over and over has to be met while it is there.
	retry = 5 * time.Millisecond
	hasty = 200

	// stuckAfter is how long that may take before zkr is told.
	stuckAfter = time.Second
)

// Main runs the guard if this process was started as one, and does not return then. Call it first
// in main.
func Main() {
	if len(os.Args) < 4 || os.Args[0] != name {
		return
	}
	grace, err := strconv.ParseInt(os.Args[1], 10, 64)
	first, err2 := strconv.Atoi(os.Args[2])
	if err != nil || err2 != nil {
		os.Exit(2)
	}
	g := &inside{grace: grace, status: os.NewFile(uintptr(first+1), "status"), killAt: math.MaxInt64, termAt: math.MaxInt64}
	rename()
	// The command must inherit neither.
	syscall.CloseOnExec(first)
	syscall.CloseOnExec(first + 1)
	g.run(os.NewFile(uintptr(first), "requests"), os.Args[3:])
	os.Exit(0)
}

// An inside is a guard, as it sees itself.
type inside struct {
	grace  int64
	status *os.File

	pid     int     // of the command, which is its process group too
	termAt  instant // when to send SIGTERM
	killAt  instant // when to send SIGKILL
	ending  bool    // and not because trust runs out
	termed  bool
	killing instant // since when
	kills   int
	told    bool // zkr, of a process that is stuck
}

// A change is that a child of ours has ended, or was stopped.
type change struct {
	pid    int
	status syscall.WaitStatus
	last   bool // no child is left
}

func (g *inside) run(pipe *os.File, argv []string) {
	// What the kernel does to the command when its parent dies, it does when this thread dies.
	runtime.LockOSThread()
	ignoreSignals()
	if err := adopt(); err != nil {
		g.tell(Failed, int64(syscall.ENOSYS))
		return
	}

	// The first record says how long there is trust. Without one, zkr has died.
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
}

// readable sends a channel whenever there is something to read, and goes on once that is closed.
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

// drain acts on all requests that there are, so that the newest decides. It returns false once zkr
// has died.
func (g *inside) drain(fd int) bool {
	for {
		poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		if n, err := unix.Poll(poll, 0); n == 0 && err == nil {
			return true
		}
		var b [size]byte
		switch n, err := syscall.Read(fd, b[:]); {
		case err == syscall.EINTR, err == syscall.EAGAIN:
		case n < size:
			g.request(record{Kind: end})
			return false
		default:
			r, _ := readRecord(bytes.NewReader(b[:])) // it has all of it
			g.request(r)
		}
	}
}

// start runs the command.
func (g *inside) start(argv []string) error {
	attr := &syscall.SysProcAttr{Setpgid: true}
	dieWith(attr)

	var err error
	g.pid, err = syscall.ForkExec(argv[0], argv[1:], &syscall.ProcAttr{
		Env:   os.Environ(),
		Files: []uintptr{0, 1, 2},
		Sys:   attr,
	})
	return err
}

// ignoreSignals keeps this process alive without having the command inherit that.
func ignoreSignals() {
	for _, s := range []os.Signal{
		syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGTSTP,
	} {
		if !ossignal.Ignored(s) {
			ossignal.Notify(make(chan os.Signal, 1), s)
		}
	}
}

// reap waits for all children, adopted ones included, and tells of each change, until there are no
// children.
func reap() <-chan change {
	changes := make(chan change)
	go func() {
		last := change{last: true}
		for c, ok := wait(0); ok; {
			next, more := wait(syscall.WNOHANG)
			if !more {
				c.last = true
				last = c
				break
			}
			changes <- c
			if c = next; c.pid == 0 {
				c, ok = wait(0)
			}
		}
		changes <- last
	}()
	return changes
}

// wait waits for a child. It returns false if there is none, and no pid if none has changed.
func wait(options int) (c change, ok bool) {
	for {
		pid, err := syscall.Wait4(-1, &c.status, options|syscall.WUNTRACED, nil)
		if err != syscall.EINTR {
			c.pid = pid
			return c, err == nil
		}
	}
}

// watch ends the command when it has to end, and returns when nothing is left of it.
func (g *inside) watch(pipe *os.File, changes <-chan change) {
	defer runtime.KeepAlive(pipe)
	fd := int(pipe.Fd())
	news, alive := readable(fd), true
	timer := time.NewTimer(0)
	for {
		var read chan struct{}
		select {
		case read = <-news:
		case c := <-changes:
			if c.last {
				changes = nil
			}
			g.changed(c)
		case <-timer.C:
		}

		// This process may have been paused, and newer requests may wait.
		if alive {
			if alive = g.drain(fd); !alive {
				news = nil
			} else if read != nil {
				close(read)
			}
		}

		if changes == nil && !groupLeft(g.pid) {
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

// trust notes until when the command may run.
func (g *inside) trust(until instant) {
	// Nothing puts off an end that was decided, though newer trust is read before it is acted on.
	if g.termed || g.ending {
		g.killAt = min(g.killAt, until)
		return
	}
	g.killAt, g.termAt = until, until-g.grace
}

// end makes the command end now, or after so many nanoseconds of grace.
func (g *inside) end(grace int64) {
	now := clock()
	g.ending = true
	g.killAt = min(g.killAt, now+grace)
	g.termAt = min(g.termAt, now)
}

// changed notes that a child has ended or was stopped. What the command leaves behind ends with it.
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

// act does what is due, and returns for how long nothing is.
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
		signalAll(g.pid, os.Getpid(), nil, syscall.SIGCONT) // a stopped process does not hear
	}
	if g.termed {
		return time.Duration(g.killAt - now)
	}
	return time.Duration(g.termAt - now)
}

// doubt tells zkr if the command ends because trust runs out.
func (g *inside) doubt() {
	if !g.ending {
		g.ending = true
		g.tell(Doubted, 0)
	}
}

func (g *inside) killAll(now instant) {
	left := signalAll(g.pid, os.Getpid(), nil, syscall.SIGKILL)
	if g.killing == 0 {
		g.killing = now
	}
	if !g.told && now-g.killing > int64(stuckAfter) && len(left) > 0 {
		g.told = true
		g.tell(Stuck, int64(left[0]))
	}
}

// signalAll sends a signal to all descendants of root, but for those below skip, and returns which
// of them are alive. SIGKILL goes to their process groups as well, at one moment for all of a group:
// none escapes by forking. Where descendants are not known it sends the signal to the process group.
func signalAll(group, root int, skip func(int) bool, s syscall.Signal) (alive []int) {
	all, known := descendants(root, skip)
	groups := make(map[int]bool)
	for _, p := range all {
		if s == syscall.SIGKILL && isOurs(p, group, all) {
			groups[p.group] = true
		}
		if !p.dead {
			alive = append(alive, p.pid)
			_ = syscall.Kill(p.pid, s) // it may have ended, and what stays is looked for again
		}
	}
	for g := range groups {
		_ = syscall.Kill(-g, s) // as above
	}
	if known || group == 0 {
		return alive
	}

	_ = syscall.Kill(-group, s) // as above
	if groupLeft(group) {
		return []int{group}
	}
	return nil
}

// isOurs reports whether all of the process group of a descendant are descendants: it is the
// command's, or of a session that one of them has begun, or led by one of them.
func isOurs(p process, command int, all []process) bool {
	if p.group <= 1 || p.group == command { // a process that has just ended has none
		return p.group > 1
	}
	if own, err := unix.Getsid(0); err == nil && p.session != own {
		return true
	}
	return slices.ContainsFunc(all, func(other process) bool { return other.pid == p.group })
}

// tell tells zkr, if it is still there.
func (g *inside) tell(k Kind, value int64) { _ = record{k, value}.writeTo(g.status) }
