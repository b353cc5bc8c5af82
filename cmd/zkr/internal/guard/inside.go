//go:build unix

package guard

import (
	"errors"
	"math"
	"os"
	ossignal "os/signal"
	"runtime"
	"strconv"
	"syscall"
	"time"
)

const (
	// name is how a guard is told from zkr, by the name that it was started with.
	name = "zkr-guard"

	// tick bounds how late a guard acts after the machine has slept, as timers stop meanwhile.
	tick = 200 * time.Millisecond

	// retry is how often processes are killed that are still there.
	retry = 5 * time.Millisecond

	// stuckAfter is how long that may take before zkr is told.
	stuckAfter = time.Second
)

// Main runs the guard if this process was started as one, and does not return then. Call it first
// in main.
func Main() {
	if len(os.Args) < 3 || os.Args[0] != name {
		return
	}
	grace, err := strconv.ParseInt(os.Args[1], 10, 64)
	if err != nil {
		os.Exit(2)
	}
	g := &inside{
		grace:  grace,
		status: os.NewFile(4, "status"),
		killAt: math.MaxInt64,
		termAt: math.MaxInt64,
	}
	rename()
	// The command must inherit neither.
	syscall.CloseOnExec(3)
	syscall.CloseOnExec(4)
	g.run(os.NewFile(3, "requests"), os.Args[2:])
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
	told    bool    // zkr, of a process that is stuck
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
		g.tell(failed, int64(syscall.ENOSYS))
		return
	}

	requests := make(chan record)
	go func() {
		defer close(requests)
		for {
			r, err := readRecord(pipe)
			if err != nil {
				return
			}
			requests <- r
		}
	}()

	// The first record says how long there is trust. Without one, zkr has died.
	first, ok := <-requests
	if !ok || first.kind != trusted || first.value-g.grace <= clock() {
		g.tell(failed, int64(syscall.ECANCELED))
		return
	}
	g.trust(first.value)
	if err := g.start(argv); err != nil {
		errno := syscall.ENOEXEC
		errors.As(err, &errno)
		g.tell(failed, int64(errno))
		return
	}
	g.tell(started, int64(g.pid))
	g.watch(requests, reap())
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
func (g *inside) watch(requests <-chan record, changes <-chan change) {
	timer := time.NewTimer(0)
	for {
		select {
		case r, ok := <-requests:
			if !ok {
				requests, r.kind = nil, end // zkr has died
			}
			g.request(r)
		case c := <-changes:
			if c.last {
				changes = nil
			}
			g.changed(c)
		case <-timer.C:
		}

		if changes == nil && !groupLeft(g.pid) {
			g.tell(gone, 0)
			return
		}
		timer.Reset(min(g.act(), tick))
	}
}

func (g *inside) request(r record) {
	switch r.kind {
	case trusted:
		g.trust(r.value)
	case signal:
		_ = syscall.Kill(-g.pid, syscall.Signal(r.value)) // it may have ended
	case end:
		g.end(g.grace)
	case kill:
		g.end(0)
	}
}

// trust notes until when the command may run.
func (g *inside) trust(until instant) {
	if g.termed {
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
		g.tell(stopped, int64(c.status.StopSignal()))
	default:
		g.tell(exited, int64(c.status))
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
		g.tell(doubted, 0)
	}
}

func (g *inside) killAll(now instant) {
	left := signalAll(g.pid, os.Getpid(), nil, syscall.SIGKILL)
	if g.killing == 0 {
		g.killing = now
	}
	if !g.told && now-g.killing > int64(stuckAfter) && len(left) > 0 {
		g.told = true
		g.tell(stuck, int64(left[0]))
	}
}

// signalAll sends a signal to all descendants of root, but for those below skip, and returns them.
// Where descendants are not known it sends the signal to the process group.
func signalAll(group, root int, skip func(int) bool, s syscall.Signal) []int {
	all, known := descendants(root, skip)
	for _, pid := range all {
		_ = syscall.Kill(pid, s) // it may have ended, and what stays is looked for again
	}
	if known || group == 0 {
		return all
	}

	_ = syscall.Kill(-group, s) // as above
	if groupLeft(group) {
		return []int{group}
	}
	return nil
}

// tell tells zkr, if it is still there.
func (g *inside) tell(k kind, value int64) { _ = record{k, value}.writeTo(g.status) }
