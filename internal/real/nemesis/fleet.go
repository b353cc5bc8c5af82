package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/must"
	"github.com/zkrecipes/zkrecipes/internal/real/program"
)

// A process is a worker, as its parent sees it.
type process struct {
	config workerConfig
	number int // among the processes of all recipes
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stderr program.Tail
	killed atomic.Bool   // we ended it
	done   chan line     // its answers to commands; closed when there will be no more
	ended  chan struct{} // closed when the process has ended and all its output was read
}

// A fleet has all processes of all recipes, and the history that they print.
type fleet struct {
	binary string
	on     ensemble

	mu        sync.Mutex // protects the fields below
	processes []*process // by number
	command   string     // the last one
	ops       map[opKey]*Op
	died      []string // processes that ended by themselves
	kept      []int    // the numbers of processes that must keep their locks
}

// start starts a process, or its next life. It fails by package must.
func (f *fleet) start(config workerConfig, number int) {
	config.Connect = must.Get(f.on.Connect(number))
	p := &process{config: config, number: number, ended: make(chan struct{}), done: make(chan line, 100)}
	p.cmd = exec.Command(f.binary)
	p.cmd.Env = append(os.Environ(), workerEnv+"="+string(must.Get(json.Marshal(config))))
	p.cmd.Stderr = &p.stderr
	p.stdin = must.Get(p.cmd.StdinPipe())
	out := must.Get(p.cmd.StdoutPipe())
	must.Succeed(p.cmd.Start())
	go f.read(p, out)

	f.mu.Lock()
	defer f.mu.Unlock()
	if number == len(f.processes) {
		f.processes = append(f.processes, nil)
	}
	f.processes[number] = p
	// A process that starts in the middle of a round takes part in it.
	if f.command != "" {
		fmt.Fprintln(p.stdin, f.command)
	}
}

// read reads a process's output until it ends.
func (f *fleet) read(p *process, out io.Reader) {
	defer close(p.ended)
	defer close(p.done)
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var l line
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			continue // a test's binary prints a line at its end
		}
		if l.Op == nil {
			p.done <- l
			continue
		}
		f.mu.Lock()
		f.ops[opKey{l.Op.Recipe, l.Op.Client, l.Op.Life, l.Op.ID}] = l.Op
		f.mu.Unlock()
	}

	// Wait closes the pipe, so it must come after the last line.
	err := p.cmd.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	if !p.killed.Load() {
		f.died = append(f.died, fmt.Sprintf("process %s %d has ended by itself: %v: %s",
			p.config.Recipe, p.config.Client, err, p.stderr.String()))
	}
}

// kill ends a process (kill -9), and returns when all its output was read.
func (f *fleet) kill(p *process) {
	// read must not count this end as a failure.
	p.killed.Store(true)
	p.cmd.Process.Kill()
	<-p.ended
	f.on.Reset(p.number)
}

func (f *fleet) restart(p *process) error {
	next := p.config
	next.Life++
	return must.Try(func() { f.start(next, p.number) })
}

func (f *fleet) all() []*process {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.processes)
}

// Holders returns the numbers of the processes that hold a lock, as far as they have printed.
func (f *fleet) Holders() (numbers []int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range f.processes {
		for _, o := range f.ops {
			if o.certain() && o.Over == 0 && p.did(o) {
				numbers = append(numbers, p.number)
				break
			}
		}
	}
	return numbers
}

// Keep makes processes keep their locks, unless they lose them.
func (f *fleet) Keep(numbers ...int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.kept = numbers
	for _, number := range numbers {
		fmt.Fprintln(f.processes[number].stdin, cmdKeep)
	}
}

// keeps reports whether a process must keep its lock.
func (f *fleet) keeps(p *process) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Contains(f.kept, p.number)
}

// Hurry makes all processes give back their locks soon.
func (f *fleet) Hurry() { f.pace(cmdHurry) }

// pace gives all processes a command that changes how long they keep a lock.
func (f *fleet) pace(command string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.kept = nil
	for _, p := range f.processes {
		fmt.Fprintln(p.stdin, command)
	}
}

// tell gives all processes a command.
func (f *fleet) tell(command string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.command = command
	for _, p := range f.processes {
		fmt.Fprintln(p.stdin, command) // if a process has ended, it's in died
	}
}

// ask gives all processes a command and waits for their answers. It returns everything that went
// wrong.
func (f *fleet) ask(ctx context.Context, command string) (broken []string) {
	f.tell(command)
	for _, p := range f.all() {
		l, answered := p.answer(ctx, command)
		switch who := fmt.Sprintf("%s %d", p.config.Recipe, p.config.Client); {
		case !answered:
			broken = append(broken, fmt.Sprintf("%s has not answered %q in time, although nothing is broken: %s\n%s", who, command, f.latest(p), p.stacks()))
		case l.Error != "":
			broken = append(broken, fmt.Sprintf("%s: %s: %s", who, command, l.Error))
		}
	}
	return broken
}

// stacks ends a process that hangs, and returns what its goroutines were doing.
func (p *process) stacks() string {
	p.killed.Store(true)
	quit(p.cmd.Process)
	select {
	case <-p.ended:
	case <-time.After(10 * time.Second): // it is stopped, or has no goroutine that runs
	}
	return p.stderr.String()
}

// answer waits for the answer of one process. If a process ended by itself, it's in died.
func (p *process) answer(ctx context.Context, command string) (l line, answered bool) {
	for {
		select {
		case l, more := <-p.done:
			if !more || l.Done == command {
				return l, true
			}
		case <-ctx.Done():
			return line{}, false
		}
	}
}

// did reports whether o is an operation of this process (of this life).
func (p *process) did(o *Op) bool {
	return o.Recipe == p.config.Recipe && o.Client == p.config.Client && o.Life == p.config.Life
}

// latest describes the last operation of a process.
func (f *fleet) latest(p *process) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var last *Op
	for _, o := range f.ops {
		if p.did(o) && (last == nil || o.ID > last.ID) {
			last = o
		}
	}

	if last == nil {
		return "it has done nothing yet"
	}
	return last.String() + " " + last.Error
}

// take returns everything since the last call: the operations, and the processes that ended by
// themselves.
func (f *fleet) take() (ops []*Op, died []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	ops = slices.SortedFunc(maps.Values(f.ops), func(a, b *Op) int { return int(a.Call - b.Call) })
	died = f.died
	f.ops, f.died = make(map[opKey]*Op), nil
	return ops, died
}

// end ends all processes. It kills processes that don't end.
func (f *fleet) end() {
	// Ask all processes to end before waiting for any.
	for _, p := range f.all() {
		p.killed.Store(true)
		// A stopped process can't read the end of its input.
		cont(p.cmd.Process)
		p.stdin.Close()
	}

	limit, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for _, p := range f.all() {
		select {
		case <-p.ended:
		case <-limit.Done():
			p.cmd.Process.Kill()
			<-p.ended
		}
	}
}
