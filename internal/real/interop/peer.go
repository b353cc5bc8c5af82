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

	"github.com/zkrecipes/zkrecipes/internal/real/program"
)

const (
	sessionTimeout = 10 * time.Second // the longest that our servers grant, so that no peer loses its session
	answerTimeout  = 3 * time.Minute  // for operations that take a second or two on an idle machine
	closeTimeout   = 5 * time.Second  // for a peer to close its sessions
)

// ErrNotInstalled is wrapped by the error of a start if a library or its language isn't installed.
var ErrNotInstalled = errors.New("not found")

// Options say how a peer runs.
type Options struct {
	Servers        string              // host:port,…
	SessionTimeout time.Duration       // of each session
	Java           []string            // further options for the Java machine
	Prepare        func(cmd *exec.Cmd) // called before the process starts, unless it is nil
}

// A Peer is a process with recipes of another language. Its methods are safe for concurrent use.
type Peer struct {
	name     string
	cmd      *exec.Cmd
	commands []string // set by start
	stderr   *program.Tail
	gone     chan struct{} // closed after the last answer

	mu      sync.Mutex // protects the fields below and writing to stdin
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

// Wait blocks until the peer has answered and returns its result. Otherwise it returns the peer's
// error (or says that the peer has ended). If ctx ends first, it returns an error that wraps ctx's
// cause. The peer goes on with the command.
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

// Start gives the peer a command and returns at once. cmd has the command and its words (see the
// package documentation). No word may contain a tab.
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

	// If the write fails, the answers end too, and the call fails there.
	_, _ = fmt.Fprintf(p.stdin, "%s\t%s\n", id, strings.Join(cmd, "\t"))
	return call
}

// Do gives the peer a command and returns the result. It fails tb if the peer reports an error or
// hasn't answered after three minutes.
func (p *Peer) Do(tb testing.TB, cmd ...string) string {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), answerTimeout)
	defer cancel()
	result, err := p.Start(cmd...).Wait(ctx)
	if err != nil {
		tb.Fatal(err)
	}
	return result
}

// Name returns the name of the library.
func (p *Peer) Name() string { return p.name }

// Commands returns the names of all commands that the peer knows.
func (p *Peer) Commands() []string { return p.commands }

// PID returns the process's number.
func (p *Peer) PID() int { return p.cmd.Process.Pid }

// Kill ends the process without giving it time to close its sessions. It blocks until the process
// has ended.
func (p *Peer) Kill() {
	_ = p.cmd.Process.Kill() // fails if it has ended
	<-p.gone
}

// run runs a peer until tb ends.
func run(tb testing.TB, connectString string, start func(context.Context, Options) (*Peer, error)) *Peer {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), answerTimeout)
	defer cancel()
	p, err := start(ctx, Options{
		Servers:        connectString,
		SessionTimeout: sessionTimeout,
		Java:           []string{"-Xmx128m", "-XX:TieredStopAtLevel=1"},
	})

	switch {
	case err == nil:
		tb.Cleanup(p.Close)
	case !errors.Is(err, ErrNotInstalled):
		tb.Fatalf("interop: %v", err)
	case os.Getenv("ZKRECIPES_REQUIRE_REAL") == "1":
		tb.Fatalf("interop: ZKRECIPES_REQUIRE_REAL=1, but %v", err)
	default:
		tb.Skipf("interop: %v", err)
	}

	return p
}

// start runs a peer and waits until it has a session.
func start(ctx context.Context, name string, o Options, command string, args ...string) (*Peer, error) {
	args = append(args, o.Servers, strconv.FormatInt(o.SessionTimeout.Milliseconds(), 10))
	p := &Peer{
		name:    name,
		cmd:     exec.Command(command, args...),
		stderr:  new(program.Tail),
		gone:    make(chan struct{}),
		pending: make(map[string]*Call),
	}

	p.cmd.Stderr = p.stderr
	if o.Prepare != nil {
		o.Prepare(p.cmd)
	}
	var err error
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}

	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}

	ready := make(chan []string, 1)
	go p.read(bufio.NewScanner(stdout), ready)

	// This can take seconds, because Java compiles the program first.
	select {
	case p.commands = <-ready:
		return p, nil
	case <-p.gone:
		err = p.goneErr()
	case <-ctx.Done():
		err = fmt.Errorf("%s did not start: %w: %s", name, context.Cause(ctx), p.stderr)
	}

	p.Close()
	return nil, err
}

// read hands each answer to its call until there are no more answers.
func (p *Peer) read(answers *bufio.Scanner, ready chan<- []string) {
	for answers.Scan() {
		// The first answer lists the commands and belongs to no call.
		if words := strings.Split(answers.Text(), "\t"); ready != nil && words[0] == "ready" {
			ready <- words[1:]
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
		case call == nil: // no answer, but a library's output
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

	// From now on Start refuses commands, so no call is left without an answer.
	p.pending = nil
	close(p.gone)
}

func (p *Peer) goneErr() error {
	return fmt.Errorf("%s has ended: %s", p.name, p.stderr)
}

// Close asks the peer to close its sessions and end, and kills it after five seconds. It blocks
// until the process has ended. Call it once.
func (p *Peer) Close() {
	// mu keeps Start from writing to a closed pipe.
	p.mu.Lock()
	_ = p.stdin.Close() // fails if the peer has ended
	p.mu.Unlock()

	select {
	case <-p.gone:
	case <-time.After(closeTimeout):
		p.Kill()
	}
	_ = p.cmd.Wait() // however it ended
}
