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

// A Process is another process of a test (the test binary, run once more).
type Process struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	wait  sync.WaitGroup // for its output
	over  bool
}

// StartProcess runs the test binary with config (as JSON) in the environment variable env. TestMain
// must look for that variable and do the work of the process instead of running tests. line gets
// each line that the process prints, on its own goroutine. The process should end when its standard
// input does. At the end of t it is killed.
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

// Kill ends the process (kill -9), and waits until it has ended.
func (p *Process) Kill() {
	if !p.over {
		p.over = true
		p.cmd.Process.Kill()
		p.wait.Wait()
		p.cmd.Wait() // returns that it was killed
	}
}

// End closes the standard input of the process and waits until it has ended. If the process ends
// with an error, End fails t.
func (p *Process) End(t *testing.T) {
	t.Helper()
	p.over = true
	require.NoError(t, p.stdin.Close())
	p.wait.Wait()
	require.NoError(t, p.cmd.Wait())
}

// UntilStdinEnds calls stop once the standard input has ended (because the parent has died, for
// example).
func UntilStdinEnds(stop func()) {
	go func() {
		io.Copy(io.Discard, os.Stdin)
		stop()
	}()
}
