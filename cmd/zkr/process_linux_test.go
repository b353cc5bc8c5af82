package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// hang is how long a process may take that has to wait for the end of a session.
const hang = 4 * suite.Limit

// wait waits for what a process must do.
func wait[T any](t *testing.T, signal <-chan T) T {
	t.Helper()
	select {
	case v := <-signal:
		return v
	case <-time.After(hang):
		require.FailNow(t, "no signal")
		panic("unreachable")
	}
}

// A process is a zkr that runs beside the test.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines chan string // what it prints on stdout
	ended chan struct{}

	mutex  sync.Mutex
	stderr strings.Builder
}

func (p *process) Write(b []byte) (int, error) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return p.stderr.Write(b)
}

// start starts a zkr in a process group of its own. It is killed at the end of the test.
func start(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{t: t, cmd: cmd, lines: make(chan string, 1000), ended: make(chan struct{})}
	// Signals to the group of the test must not reach zkr.
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	}
	cmd.Stderr = p
	out, in, err := os.Pipe()
	require.NoError(t, err)
	if cmd.Stdout == nil {
		cmd.Stdout = in
	}
	require.NoError(t, cmd.Start())
	require.NoError(t, in.Close())

	var all sync.WaitGroup
	all.Go(func() {
		defer out.Close()
		for scanner := bufio.NewScanner(out); scanner.Scan(); {
			p.lines <- scanner.Text()
		}
		close(p.lines)
	})
	go func() {
		_ = cmd.Wait() // its status is looked at
		close(p.ended)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGCONT)
		_ = cmd.Process.Kill()
		<-p.ended
		all.Wait() // for all that has its stdout
		if t.Failed() {
			p.mutex.Lock()
			defer p.mutex.Unlock()
			t.Logf("stderr of zkr:\n%s", p.stderr.String())
		}
	})
	return p
}

// ignored is whether this process was started to ignore SIGHUP or SIGINT. Once a test has asked for
// these signals, nothing tells.
var ignored = signal.Ignored(syscall.SIGHUP) || signal.Ignored(syscall.SIGINT)

// notUnderNohup skips a test of SIGHUP or SIGINT if this process was started to ignore it.
func notUnderNohup(t *testing.T) {
	t.Helper()
	if ignored {
		t.Skip("SIGHUP or SIGINT is ignored")
	}
}

// line waits for a line on stdout, which is not empty.
func (p *process) line() string {
	p.t.Helper()
	line := wait(p.t, p.lines)
	require.NotEmpty(p.t, line, "no more lines: the process has ended")
	return line
}

// pids waits for a line of process IDs.
func (p *process) pids() []int {
	p.t.Helper()
	var all []int
	for _, word := range strings.Fields(p.line()) {
		pid := suite.Got(strconv.Atoi(word))(p.t)
		all = append(all, pid)
	}
	return all
}

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(s))
}

// pause stops zkr, and waits until all its threads have stopped.
func (p *process) pause() {
	p.t.Helper()
	p.signal(syscall.SIGSTOP)
	require.NoError(p.t, unix.Waitid(unix.P_PID, p.cmd.Process.Pid, nil, unix.WSTOPPED|unix.WNOWAIT, nil))
}

// status waits for the end, and returns the exit status.
func (p *process) status() int {
	p.t.Helper()
	wait(p.t, p.ended)
	return p.cmd.ProcessState.ExitCode()
}

// said returns what a process that has ended has printed on stderr.
func (p *process) said() string {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return p.stderr.String()
}

// guard returns the process ID of zkr's guard.
func (p *process) guard(command int) int {
	p.t.Helper()
	_, parent := stat(command)
	require.Positive(p.t, parent)
	require.NotEqual(p.t, p.cmd.Process.Pid, parent)
	return parent
}

// stat returns the state and the parent of a process. A process that is gone has no state.
func stat(pid int) (state string, parent int) {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", 0
	}
	fields := strings.Fields(string(content[strings.LastIndexByte(string(content), ')')+1:]))
	parent, _ = strconv.Atoi(fields[1])
	return fields[0], parent
}

// running reports which of the processes can still do something.
func running(pids []int) []int {
	return slices.DeleteFunc(slices.Clone(pids), func(pid int) bool {
		state, _ := stat(pid)
		return state == "" || state == "Z" || state == "X"
	})
}

// awaitEnd waits until none of the processes can do anything any more.
func awaitEnd(t *testing.T, pids []int) {
	t.Helper()
	for end := time.Now().Add(hang); len(running(pids)) > 0; time.Sleep(time.Millisecond) {
		require.True(t, time.Now().Before(end), "processes %v run on", running(pids))
	}
}

// requireGoneBeforeGrant waits for the lock at path, and fails if processes run on at that moment.
func requireGoneBeforeGrant(t *testing.T, s *recipestest.Server, path string, pids []int) {
	t.Helper()
	lease := lockNow(t, s, path)
	assert.Empty(t, running(pids), "they run though another client holds the lock")
	require.NoError(t, lease.Unlock(suite.Lasting(t)))
}

// network returns the address of a TCP port that leads through link, for other processes.
func network(t *testing.T, s *recipestest.Server, link *recipestest.Link) string {
	t.Helper()
	listener := suite.Got(net.Listen("tcp", "127.0.0.1:0"))(t)
	var all sync.WaitGroup
	t.Cleanup(func() {
		listener.Close()
		all.Wait()
	})
	all.Go(func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			far, err := link.Dial("tcp", s.ConnectString(), time.Second)
			if err != nil {
				near.Close()
				continue
			}
			// Closing either end closes both.
			both := sync.OnceFunc(func() { near.Close(); far.Close() })
			t.Cleanup(both)
			all.Go(func() {
				defer both()
				_, _ = io.Copy(far, near)
			})
			all.Go(func() {
				defer both()
				_, _ = io.Copy(near, far)
			})
		}
	})
	return listener.Addr().String()
}
