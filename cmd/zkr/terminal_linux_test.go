package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// startOnTerminal starts a zkr whose terminal is the returned one. What the command prints on file
// descriptor 3 are its lines.
func startOnTerminal(t *testing.T, s *recipestest.Server, script string) (*process, *os.File) {
	t.Helper()
	return startWithTerminal(t, zkr(t, s.ConnectString(), "lock", s.Root(t)+"/lock", "--", "sh", "-c", script))
}

// startWithTerminal starts a command whose standard input is a terminal.
func startWithTerminal(t *testing.T, cmd *exec.Cmd) (*process, *os.File) {
	t.Helper()
	master, slave, err := pty.Open()
	require.NoError(t, err)
	t.Cleanup(func() { master.Close() })
	defer slave.Close()
	cmd.Stdin = slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0}
	return start(t, cmd), master
}

// press sends what the keys of a terminal send.
func press(t *testing.T, terminal *os.File, keys string) {
	t.Helper()
	suite.Got(terminal.WriteString(keys))(t)
}

func TestCommandReadsFromTheTerminal(t *testing.T) {
	s := recipestest.Start(t)
	p, terminal := startOnTerminal(t, s, `echo ready; read -r a; echo "got $a"; read -r b; echo "got $b"`)
	require.Equal(t, "ready", p.line())
	press(t, terminal, "one\ntwo\n")
	assert.Equal(t, "got one", p.line())
	assert.Equal(t, "got two", p.line())
	assert.Zero(t, p.status())
}

func TestInterruptFromTheTerminalReachesTheCommandOnce(t *testing.T) {
	s := recipestest.Start(t)
	for name, first := range map[string]string{"background": "", "foreground": "read -r a;"} {
		t.Run(name, func(t *testing.T) {
			p, terminal := startOnTerminal(t, s, `trap 'echo interrupted' INT; trap 'exit 6' TERM; `+first+
				`echo ready; while :; do sleep 0.05; done`)
			press(t, terminal, "line\n")
			require.Equal(t, "ready", p.line())
			press(t, terminal, "\x03")
			require.Equal(t, "interrupted", p.line())
			p.signal(syscall.SIGTERM)
			assert.Equal(t, 6, p.status())
			assert.Empty(t, p.lines)
		})
	}
}

func TestClosedTerminalHangsUpTheCommand(t *testing.T) {
	notUnderNohup(t)
	s := recipestest.Start(t)
	p, terminal := startOnTerminal(t, s, `trap 'echo hung up; exit 5' HUP; echo ready; while :; do sleep 0.05; done`)
	require.Equal(t, "ready", p.line())
	require.NoError(t, terminal.Close())
	assert.Equal(t, "hung up", p.line())
	assert.Equal(t, 5, p.status())
}

func TestWaitOnATerminalSaysForWhom(t *testing.T) {
	s := recipestest.Start(t)
	path := s.Root(t) + "/lock"
	lease := lockNow(t, s, path)

	// Without the holder if the server takes more than a second to name it.
	holder := regexp.MustCompile(fmt.Sprintf(`, held by .*:%d .* since 20`, os.Getpid()))
	var cmd *exec.Cmd
	for line, began := "", time.Now(); !holder.MatchString(line); {
		require.Less(t, time.Since(began), hang, line)
		cmd = zkr(t, s.ConnectString(), "lock", path, "--", "true")
		out := suite.Got(cmd.StderrPipe())(t)
		require.NoError(t, cmd.Start())
		line = suite.Got(bufio.NewReader(out).ReadString('\n'))(t)
	}
	require.NoError(t, lease.Unlock(t.Context()))
	require.NoError(t, cmd.Wait())
}
