package suite

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// A Process is another process of a test: the test binary, run once more.
type Process struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	wait  sync.WaitGroup // for what it prints
	over  bool
}

// StartProcess runs the test binary with config, as JSON, in the environment variable env. TestMain
// looks for that variable and does the work of the process instead of running tests. line is called
// with each line that the process prints, on a goroutine of its own. The process should end when
// its standard input does. It is killed at the end of t at the latest.
func StartProcess(t *testing.T, env string, config any, line func([]byte)) *Process {
	t.Helper()
	text, err := json.Marshal(config)
	require.NoError(t, err)
	p := &Process{cmd: exec.Command(os.Args[0])}
	p.cmd.Env = append(os.Environ(), env+"="+string(text))
	p.cmd.Stderr = os.Stderr
	p.stdin, err = p.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	p.wait.Go(func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			line(lines.Bytes())
		}
	})

	t.Cleanup(p.Kill)
	return p
}

// Kill ends the process as kill -9 does, and waits until it has.
func (p *Process) Kill() {
	if !p.over {
		p.over = true
		p.cmd.Process.Kill()
		p.wait.Wait()
		p.cmd.Wait() // returns that it was killed
	}
}

// End closes the standard input of the process and waits until it has ended. It fails t if the
// process ends with an error.
func (p *Process) End(t *testing.T) {
	t.Helper()
	p.over = true
	require.NoError(t, p.stdin.Close())
	p.wait.Wait()
	require.NoError(t, p.cmd.Wait())
}

// UntilStdinEnds calls stop once the standard input has ended, as it does when the parent dies.
func UntilStdinEnds(stop func()) {
	go func() {
		io.Copy(io.Discard, os.Stdin)
		stop()
	}()
}
