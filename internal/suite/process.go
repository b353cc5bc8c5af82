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

// A Process is the test binary run once more, to be somebody else's process.
type Process struct {
	cmd   *exec.Cmd
	stdin io.Closer
	wait  sync.WaitGroup // for what it prints
	over  bool
}

// StartProcess runs the test binary with config, as JSON, in an environment variable, by which its TestMain tells that
// it is to be such a process. line gets what it prints, line by line, on a goroutine of the process. It is to end when
// its standard input does, and is killed at the end of t at the latest.
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
		p.cmd.Wait() // says that it was killed
	}
}

// End has the process end by itself, and demands that it ends well.
func (p *Process) End(t *testing.T) {
	t.Helper()
	p.over = true
	require.NoError(t, p.stdin.Close())
	p.wait.Wait()
	require.NoError(t, p.cmd.Wait())
}

// UntilStdinEnds calls stop once the standard input has ended, which it does when the parent dies, too.
func UntilStdinEnds(stop func()) {
	go func() {
		io.Copy(io.Discard, os.Stdin)
		stop()
	}()
}
