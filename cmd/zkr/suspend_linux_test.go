package main

import (
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// jobControl is what an interactive shell does. It runs a zkr. Once that is stopped, it waits for a
// line on the terminal, and brings the zkr back to the foreground.
const jobControl = `
	"$@"
	echo "suspended $?"
	read -r _
	fg >/dev/null
	echo "ended $?"`

// startInShell is like startOnTerminal, for a zkr that is a job of a shell.
func startInShell(t *testing.T, s *recipestest.Server, shell, timeout, path, script string) (*process, *os.File) {
	t.Helper()
	bash := suite.Got(exec.LookPath("bash"))(t)
	cmd := zkr(t, s.ConnectString(), "lock", "--timeout", timeout, path, "--", "sh", "-c", script)
	cmd.Args = append([]string{bash, "-ic", shell, "shell", cmd.Path}, cmd.Args[1:]...)
	cmd.Path = bash
	return startWithTerminal(t, cmd)
}

// The commands here do not fork after the line that they print. A child of vfork that is stopped
// before it runs a program keeps its parent from being stopped. Nor does one with a trap read: a
// signal just before a read waits for its end, but not one before a wait.

// suspended is the status that a shell has for a zkr that has stopped itself.
const suspended = "suspended 149"

// awaitState waits until a process is stopped, or is not.
func awaitState(t *testing.T, pid int, stopped bool) {
	t.Helper()
	suite.Soon(t, func() bool { state, _ := stat(pid); return (state == "T") == stopped }, "another state of the process")
}

func TestSuspendedCommandGoesOnWithItsLock(t *testing.T) {
	s := recipestest.Start(t)
	for name, first := range map[string]string{"background": "", "foreground": "read -r a;"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := s.Root(t) + "/lock"
			p, terminal := startInShell(t, s, jobControl, long, path, first+`echo $$; exec sleep 1000`)
			// The foreground command reads from the terminal first.
			if first != "" {
				press(t, terminal, "line\n")
			}
			pid := p.pids()[0]

			// Ctrl-Z stops the command, and the lock stays held.
			press(t, terminal, "\x1a")
			require.Equal(t, suspended, p.line())
			awaitState(t, pid, true)
			require.ErrorIs(t, suite.Err(lock.New(s.Client(t), path).TryLock(suite.Lasting(t))), lock.ErrLocked)

			// fg lets it go on, with its lock.
			press(t, terminal, "\n")
			awaitState(t, pid, false)
			require.NoError(t, syscall.Kill(pid, syscall.SIGUSR1))
			assert.Equal(t, "ended 138", p.line())
			assert.Zero(t, p.status())
		})
	}
}

func TestSuspendedCommandIsGoneBeforeItsLockIsGranted(t *testing.T) {
	each(t, func(t *testing.T, s *recipestest.Server) {
		t.Parallel()
		path := s.Root(t) + "/lock"
		p, terminal := startInShell(t, s, jobControl, short, path,
			`trap "" TERM; sleep 1000 >/dev/null & child=$!; setsid sleep 1000 >/dev/null & echo $$ $child $!; exec sleep 1000`)
		pids := p.pids()
		press(t, terminal, "\x1a")
		require.Equal(t, suspended, p.line())
		requireGoneBeforeGrant(t, s, path, pids)

		// fg finds that the lock is lost and the command is gone.
		press(t, terminal, "\n")
		assert.Equal(t, "ended 76", p.line())
		assert.Zero(t, p.status())
	})
}

// A wait that is suspended holds up others for the session timeout at most, and is taken up again.
func TestSuspendedWaitGoesOn(t *testing.T) {
	s := recipestest.Start(t)
	path := s.Root(t) + "/lock"
	lease := lockNow(t, s, path)
	p, terminal := startInShell(t, s, jobControl, short, path, "exit 5")
	awaitContenders(t, s, path, 2)
	press(t, terminal, "\x1a")
	require.Equal(t, suspended, p.line())

	// Others get the lock while the wait is suspended, and it queues again afterwards.
	require.NoError(t, lease.Unlock(suite.Lasting(t)))
	next := lockNow(t, s, path)
	press(t, terminal, "\n")
	awaitContenders(t, s, path, 2)
	require.NoError(t, next.Unlock(suite.Lasting(t)))
	assert.Equal(t, "ended 5", p.line())
}

func TestSuspendedCommandEndsWithItsShell(t *testing.T) {
	notUnderNohup(t)
	s := recipestest.Start(t)
	for name, script := range map[string]string{
		"background": `echo $$ $PPID; exec sleep 1000`,
		"foreground": `read -r a; echo $$ $PPID; while read -r a; do :; done; exec sleep 1000`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, terminal := startInShell(t, s, jobControl, long, s.Root(t)+"/lock", script)
			press(t, terminal, "line\n")
			pids := p.pids()
			_, zkr := stat(pids[1])
			press(t, terminal, "\x1a")
			require.Equal(t, suspended, p.line())
			p.signal(syscall.SIGKILL)
			awaitEnd(t, append(pids, zkr))
		})
	}
}

func TestBackgroundReaderEndsWithItsShell(t *testing.T) {
	notUnderNohup(t)
	s := recipestest.Start(t)
	p, _ := startInShell(t, s, `"$@" & sleep 1000`, long, s.Root(t)+"/lock",
		`echo $$ $PPID; while read -r a; do :; done; exec sleep 1000`)
	pids := p.pids()
	_, zkr := stat(pids[1])
	awaitState(t, zkr, true)
	p.signal(syscall.SIGKILL)
	awaitEnd(t, append(pids, zkr))
}

// When its shell ends, the kernel continues a zkr only if all its threads have stopped. Here it
// doesn't continue zkr, because there is no shell from the start.
func TestStoppedZkrWithoutAShellEndsWithItsCommand(t *testing.T) {
	s := recipestest.Start(t)
	cmd := zkr(t, s.ConnectString(), "lock", "--timeout", long, s.Root(t)+"/lock", "--", "sh", "-c", `echo $$ $PPID; exec sleep 1000`)
	cmd.Args = append([]string{"sh", "-c", `"$0" "$@" & wait`, cmd.Path}, cmd.Args[1:]...)
	cmd.Path = "/bin/sh"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	p := start(t, cmd)
	pids := p.pids()
	_, zkr := stat(pids[1])
	require.NoError(t, syscall.Kill(zkr, syscall.SIGSTOP))
	awaitState(t, zkr, true)
	p.signal(syscall.SIGKILL)
	awaitEnd(t, []int{p.cmd.Process.Pid})
	require.NoError(t, syscall.Kill(pids[0], syscall.SIGKILL))
	awaitEnd(t, append(pids, zkr))
}

// A zkr that is the leader of its session has no shell that could continue it.
func TestCtrlZWithoutAShellStopsNothing(t *testing.T) {
	p, terminal := startOnTerminal(t, recipestest.Start(t),
		`trap 'echo continued' CONT; trap 'exit 6' TERM; sleep 1000 >/dev/null & echo ready; while :; do wait; done`)
	require.Equal(t, "ready", p.line())
	press(t, terminal, "\x1a")
	require.Equal(t, "continued", p.line())
	p.signal(syscall.SIGTERM)
	assert.Equal(t, 6, p.status())
}
