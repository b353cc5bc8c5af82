//go:build unix

package main

import (
	"io"
	"os"
	"testing"

	"github.com/creack/pty"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// A console is a terminal with a process of zkr on it.
type console struct {
	screen *stream
	keys   *os.File
	status <-chan int
}

func onTerminal(t *testing.T, servers string, args ...string) console {
	t.Helper()
	cmd := zkr(t, servers, args...)
	f := suite.Got(pty.StartWithSize(cmd, &pty.Winsize{Rows: 10, Cols: 120}))(t)
	t.Cleanup(func() { f.Close() })
	screen := newStream()
	shown := suite.Later(func() error { _, err := io.Copy(screen, f); return err })
	status := suite.Later(func() int {
		cmd.Wait()
		<-shown // which ends when the process has closed the terminal
		return cmd.ProcessState.ExitCode()
	})
	return console{screen, f, status}
}

func TestElementsAreQuotedOnATerminal(t *testing.T) {
	s := recipestest.Start(t)
	path, servers := s.Root(t)+"/queue", s.ConnectString()
	succeed(t, servers, "queue", "offer", path, "\x1b[31m")
	for _, try := range []struct{ args, want []string }{
		{[]string{"peek", path}, []string{`"\x1b[31m"` + "\r\n"}},
		{[]string{"peek", path, "--raw"}, []string{"\x1b[31m"}},
		{[]string{"take", path}, []string{`"\x1b[31m"` + "\r\n"}},
	} {
		on := onTerminal(t, servers, append([]string{"queue"}, try.args...)...)
		require.Zero(t, suite.Wait(t, on.status))
		assert.Equal(t, try.want[0], on.screen.String())
	}
}

func TestBreakAsksOnATerminal(t *testing.T) {
	s := recipestest.Start(t)
	path := s.Root(t) + "/lock"
	lease := suite.Must(t, lock.New(client(t, s), path, lock.WithData([]byte("\x1b[2J"))).Lock)

	// Anything but yes leaves the lock alone (also the end of the input).
	for _, answer := range []string{"n\n", "\n", "\x04"} {
		on := onTerminal(t, s.ConnectString(), "break", path, lease.Node())
		on.screen.await(t, `lock or election `+path+`: holds "\\x1b\[2J" 0x[0-9a-f]+ in line since .*\[y/N\] `)
		on.keys.WriteString(answer)
		assert.Equal(t, exitFailed, suite.Wait(t, on.status))
		assert.Contains(t, on.screen.String(), "not done")
	}
	require.NoError(t, lease.Err())

	on := onTerminal(t, s.ConnectString(), "break", path, lease.Node())
	on.screen.await(t, `\[y/N\] `)
	on.keys.WriteString("y\n")
	assert.Zero(t, suite.Wait(t, on.status), on.screen.String())
	suite.Wait(t, lease.Done())
}

func TestPsIsLiveOnATerminal(t *testing.T) {
	s := recipestest.Start(t)
	path := s.Root(t) + "/lock"
	on := onTerminal(t, s.ConnectString(), "ps", path, "--watch", "--interval", "100ms")
	on.screen.await(t, `\A\x1b\[\?1049h.*(?s:.*)there is no such node`)
	suite.Must(t, lock.New(client(t, s), path).Lock)
	on.screen.await(t, `(?s)\x1b\[H[^\x1b]*every 100ms.* holds `)
	on.keys.WriteString("\x03")
	assert.Zero(t, suite.Wait(t, on.status))
	assert.Regexp(t, `\x1b\[\?1049l\z`, on.screen.String())
}
