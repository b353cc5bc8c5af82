package interop

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	sessionTimeout = 10 * time.Second // the longest that our servers grant, so that no peer loses its session
	answerTimeout  = 3 * time.Minute  // for what takes a second or two on an idle machine
)

// A Peer is a process with recipes of another language. Its methods are safe for concurrent use.
type Peer struct {
	name   string
	cmd    *exec.Cmd
	stderr *tail
	gone   chan struct{} // closed after the last answer

	mu      sync.Mutex // guards the fields below and writing to stdin
	stdin   io.WriteCloser
	calls   int
	pending map[string]*Call // nil when gone
}

// A Call is a command that was given to a peer.
type Call struct {
	words  []string
	done   chan struct{}
	result string // this and err are set before done is closed
	err    error
}

// Done returns a channel that is closed when the peer has answered, or is gone.
func (c *Call) Done() <-chan struct{} { return c.done }

// Wait blocks until the peer has answered, and returns its result. It returns the peer's error, or
// one that says that the peer is gone. If ctx ends first, it returns an error that wraps ctx's
// cause, and the peer goes on with the command.
func (c *Call) Wait(ctx context.Context) (string, error) {
	select {
	case <-c.done:
		return c.result, c.err
	case <-ctx.Done():
		return "", fmt.Errorf("%s: %w", strings.Join(c.words, " "), context.Cause(ctx))
	}
}

func (c *Call) finish(result string, err error) {
	if err != nil {
		err = fmt.Errorf("%s: %w", strings.Join(c.words, " "), err)
	}
	c.result, c.err = result, err
	close(c.done)
}

// Start gives the peer a command and returns at once. The words are those of the package
// documentation, beginning with the command. No word may contain a tab.
func (p *Peer) Start(cmd ...string) *Call {
	call := &Call{words: append([]string{p.name}, cmd...), done: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pending == nil {
		call.finish("", p.goneErr())
		return call
	}

	p.calls++
	id := strconv.Itoa(p.calls)
	p.pending[id] = call

	// If the write fails, the answers end, too, and the call fails there.
	_, _ = fmt.Fprintf(p.stdin, "%s\t%s\n", id, strings.Join(cmd, "\t"))
	return call
}

// Do gives the peer a command, waits for its answer and returns the result. It fails tb if the peer
// reports an error, or has not answered after three minutes.
func (p *Peer) Do(tb testing.TB, cmd ...string) string {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), answerTimeout)
	defer cancel()
	result, err := p.Start(cmd...).Wait(ctx)
	require.NoError(tb, err)
	return result
}

// Kill ends the process without giving it time to close its session.
func (p *Peer) Kill(tb testing.TB) {
	tb.Helper()
	require.NoError(tb, p.cmd.Process.Kill())
	<-p.gone
}

// start runs a peer until tb ends, and waits until it has a session.
func start(tb testing.TB, name string, cmd *exec.Cmd) *Peer {
	tb.Helper()
	p := &Peer{
		name:    name,
		cmd:     cmd,
		stderr:  new(tail),
		gone:    make(chan struct{}),
		pending: make(map[string]*Call),
	}

	cmd.Stderr = p.stderr
	stdin, err := cmd.StdinPipe()
	require.NoError(tb, err)
	p.stdin = stdin
	stdout, err := cmd.StdoutPipe()
	require.NoError(tb, err)
	require.NoError(tb, cmd.Start())
	tb.Cleanup(p.stop)

	ready := make(chan struct{})
	go p.read(bufio.NewScanner(stdout), ready)

	select {
	case <-ready:
	case <-p.gone:
		require.Fail(tb, name+" ended", p.stderr.String())
	case <-time.After(answerTimeout):
		require.Fail(tb, name+" did not start", p.stderr.String())
	}

	return p
}

// read hands each answer to its call until there are no more answers.
func (p *Peer) read(answers *bufio.Scanner, ready chan<- struct{}) {
	for answers.Scan() {
		if ready != nil && answers.Text() == "ready" {
			close(ready)
			ready = nil
			continue
		}

		id, answer, _ := strings.Cut(answers.Text(), "\t")
		kind, text, _ := strings.Cut(answer, "\t")
		p.mu.Lock()
		call := p.pending[id]
		delete(p.pending, id)
		p.mu.Unlock()

		switch {
		case call == nil: // no answer, but output of a library
		case kind == "ok":
			call.finish(text, nil)
		default:
			call.finish("", errors.New(text))
		}
	}

	p.mu.Lock()
	defer p.mu.Unlock()
	for _, call := range p.pending {
		call.finish("", p.goneErr())
	}

	p.pending = nil
	close(p.gone)
}

func (p *Peer) goneErr() error {
	return fmt.Errorf("%s has ended: %s", p.name, p.stderr)
}

// stop gives the peer five seconds to close its session, then ends it.
func (p *Peer) stop() {
	p.mu.Lock()
	_ = p.stdin.Close() // asks the peer to end; fails if it has ended
	p.mu.Unlock()
	select {
	case <-p.gone:
	case <-time.After(5 * time.Second):
		_ = p.cmd.Process.Kill() // fails if the peer has just ended
		<-p.gone
	}
	_ = p.cmd.Wait() // however it ended
}

// unavailable ends tb because there is no such peer. It fails tb where real peers are required, and
// skips it otherwise.
func unavailable(tb testing.TB, name string, err error) {
	tb.Helper()
	if os.Getenv("ZKRECIPES_REQUIRE_REAL") == "1" {
		tb.Fatalf("interop: ZKRECIPES_REQUIRE_REAL=1, but there is no %s: %v", name, err)
	}
	tb.Skipf("interop: there is no %s: %v", name, err)
}

// A tail keeps the last few kilobytes written to it.
type tail struct {
	mu   sync.Mutex
	text []byte
}

func (t *tail) Write(p []byte) (int, error) {
	const most = 8 << 10
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	t.text = t.text[max(0, len(t.text)-most):]
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.text)
}
