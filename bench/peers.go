package main

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

//go:embed peers/CuratorPeer.java
var curatorProgram []byte

//go:embed peers/kazoo_peer.py
var kazooProgram string

// errAbsent is the error of a library that is not installed.
var errAbsent = errors.New("not found")

// A peer is a process in which a library of another language does the same work as we do. It has
// one session at first, and opens more as it needs them. It reads commands from standard input, one
// at a time, their words separated by tabs. It answers each with a line on standard output:
//
//	ready COMMANDS          at the beginning; their names separated by spaces
//	ok OPERATIONS NANOSECONDS
//	err TEXT
//
// It does the work, and takes the time, by itself:
//
//	lock PATH MS                      lock and unlock, as often as possible
//	lockloop PATH SESSIONS MS         the same in that many sessions at once
//	lockline PATH N SESSIONS          take a lock while N-1 others begin to wait for it
//	electionline PATH N SESSIONS      the same with candidates for an election
//	drain                             release it, one contender after the other
//	rwloop PATH SESSIONS MS           lock and unlock a shared lock, one time in ten to write
//	offer PATH THREADS MS             append to a queue
//	take PATH CONSUMERS MS            empty a queue, each consumer in a session of its own
//	doublebarrier PATH MEMBERS MS N   enter and leave double barriers PATH/0 to PATH/N-1 in turn
//
// A peer ends when its standard input ends.
type peer struct {
	name     string
	cmd      *exec.Cmd
	commands []string
	in       io.WriteCloser
	answers  chan string // closed when there will be no more
	log      *tail
}

func startCurator(ctx context.Context, e *env) (*peer, error) {
	java, err := exec.LookPath("java")
	if err == nil {
		_, err = exec.LookPath("javac")
	}

	if err == nil {
		_, err = os.Stat(debianJars + "/curator-recipes.jar")
	}

	if err != nil {
		return nil, fmt.Errorf("%w: Curator (Debian's libcurator-recipes-java, and a JDK): %w", errAbsent, err)
	}

	dir, err := os.MkdirTemp("", "zkrecipes-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	source := filepath.Join(dir, "CuratorPeer.java")
	if err := os.WriteFile(source, curatorProgram, 0o600); err != nil {
		return nil, err
	}

	return startPeer(ctx, "Curator", exec.Command(java, "-Xmx1g", "-Xss256k", "-XX:+UseSerialGC",
		"-cp", debianJars+"/slf4j-nop.jar:"+debianJars+"/*", source, e.address, fmt.Sprint(sessionTimeout.Milliseconds())))
}

func startKazoo(ctx context.Context, e *env) (*peer, error) {
	var errs []error
	for _, python := range []string{"python3", "/usr/bin/python3"} {
		err := exec.Command(python, "-c", "import kazoo.client").Run()
		if err == nil {
			return startPeer(ctx, "kazoo", exec.Command(python, "-c", kazooProgram, e.address, fmt.Sprint(sessionTimeout.Milliseconds())))
		}
		errs = append(errs, fmt.Errorf("%s: %w", python, err))
	}
	return nil, fmt.Errorf("%w: kazoo (Debian's python3-kazoo): %w", errAbsent, errors.Join(errs...))
}

func startPeer(ctx context.Context, name string, cmd *exec.Cmd) (*peer, error) {
	p := &peer{name: name, cmd: cmd, answers: make(chan string, 1), log: new(tail)}
	cmd.Stderr = p.log
	detach(cmd)
	var err error
	if p.in, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}

	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}

	if err := cmd.Start(); err != nil {
		return nil, err
	}

	go func() {
		defer close(p.answers)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			p.answers <- lines.Text()
		}
	}()

	words, err := p.answer(ctx)
	if err == nil && (len(words) != 2 || words[0] != "ready") {
		err = fmt.Errorf("%s is not ready: %s", name, words)
	}
	if err != nil {
		p.close()
		return nil, err
	}

	p.commands = strings.Fields(words[1])
	return p, nil
}

// peerTimeout bounds what takes seconds.
const peerTimeout = 45 * time.Second

func (p *peer) answer(ctx context.Context) ([]string, error) {
	select {
	case line, ok := <-p.answers:
		if !ok {
			return nil, fmt.Errorf("%s has ended: %s", p.name, p.log)
		}
		return strings.Split(line, "\t"), nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-time.After(peerTimeout):
		return nil, fmt.Errorf("%s has not answered for %v: %s", p.name, peerTimeout, p.log)
	}
}

// do gives the peer a command. It returns the number of operations done, and the time they took.
func (p *peer) do(ctx context.Context, command string, args ...any) (ops int, elapsed time.Duration, err error) {
	line := command
	for _, a := range args {
		line += "\t" + fmt.Sprint(a)
	}

	if _, err := io.WriteString(p.in, line+"\n"); err != nil {
		return 0, 0, fmt.Errorf("%s: %w: %s", p.name, err, p.log)
	}

	words, err := p.answer(ctx)
	if err != nil {
		return 0, 0, err
	}

	var nanos int64
	if len(words) != 3 || words[0] != "ok" {
		return 0, 0, fmt.Errorf("%s: %s: %s", p.name, command, strings.Join(words[1:], " "))
	}

	_, err = fmt.Sscan(words[1]+" "+words[2], &ops, &nanos)
	return ops, time.Duration(nanos), err
}

// close asks the peer to end, and kills it after three seconds.
func (p *peer) close() {
	p.in.Close()
	end := time.AfterFunc(3*time.Second, func() { p.cmd.Process.Kill() })
	defer end.Stop()
	for range p.answers {
		// There may be one more.
	}
	p.cmd.Wait()
}

// dismiss ends a peer that has failed. The following work goes on without it.
func (e *env) dismiss(p *peer) {
	e.peers = slices.DeleteFunc(e.peers, func(q *peer) bool { return p == q })
	p.cmd.Process.Kill()
	p.close()
}

// peersWith returns a contestant for each peer that has a command.
func (e *env) peersWith(command string, run func(*peer) func(context.Context, *meter) error) (all []*contestant) {
	for _, p := range e.peers {
		if slices.Contains(p.commands, command) {
			all = append(all, &contestant{name: p.name, peer: p, run: run(p)})
		}
	}
	return all
}

// peersFor returns a contestant for each peer that has a command, which it carries out for as long
// as a round takes.
func (e *env) peersFor(command string, args func(name string) []any) []*contestant {
	return e.peersWith(command, func(p *peer) func(context.Context, *meter) error {
		return func(ctx context.Context, m *meter) error {
			return p.measured(ctx, m, command, append(args(p.name), m.slice.Milliseconds())...)
		}
	})
}

func (p *peer) measured(ctx context.Context, m *meter, command string, args ...any) error {
	m.start()
	ops, elapsed, err := p.do(ctx, command, args...)
	if err != nil {
		return err
	}
	m.stopAt(ops, elapsed)
	return nil
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
	return string(bytes.TrimSpace(t.text))
}
