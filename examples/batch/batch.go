package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/doublebarrier"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/queue"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

// timeout bounds what takes a few session timeouts at most, unless something is wrong.
const timeout = 30 * time.Second

var errTooSlow = errors.New("timed out: is ZooKeeper running?")

// A batch is the parent of the workers.
type batch struct {
	servers string
	path    string
	out     io.Writer
	began   time.Time

	client  *protocol.Client
	phase   *doublebarrier.Barrier
	tasks   *queue.Queue
	workers []*worker
	reports chan report
	done    map[string]bool // the tasks of all phases that are reported as done
}

// A worker is a process as its parent sees it.
type worker struct {
	name   string
	cmd    *exec.Cmd
	stdin  io.Closer
	late   bool // it has replaced another worker
	killed bool
	wait   sync.WaitGroup // for its reports
}

// A report is a line that a worker prints.
type report struct {
	by      *worker
	what    string // "joins", "begins" or "ends"
	object  string // a phase or a task
	attempt int
}

// run does the whole batch. It leaves neither processes nor nodes behind, also when ctx ends.
func run(ctx context.Context, out io.Writer, servers string) (err error) {
	b := &batch{
		servers: servers, out: out, began: time.Now(),
		path:    "/batch-" + strings.ToLower(rand.Text()[:6]),
		reports: make(chan report, 1000),
		done:    make(map[string]bool),
	}

	where := "on the ensemble " + servers
	if servers == "" {
		server, err := embedded.Start(embedded.Config{TickTime: sessionTimeout / 4})
		if err != nil {
			return err
		}
		defer server.Close()
		b.servers = server.ConnectString()
		where = "on a ZooKeeper inside this program, at " + b.servers
	}

	fmt.Fprintf(out, "%d phases of %d tasks, for %d workers, %s.\n", phases, tasks, workers, where)

	ctx, cancel := context.WithTimeoutCause(ctx, phases*timeout, errTooSlow)
	defer cancel()
	if b.client, err = protocol.Connect(ctx, b.servers, protocol.WithSessionTimeout(sessionTimeout)); err != nil {
		return err
	}

	b.phase, b.tasks = plan(b.client, b.path, "parent")
	defer func() {
		err = errors.Join(err, b.end(err == nil))
		b.client.Close() // if the servers are slow to answer, its session ends by itself
	}()

	for i := range workers {
		if err := b.start(fmt.Sprintf("worker %d", i+1), false); err != nil {
			return err
		}
	}

	for n := 1; n <= phases; n++ {
		if err := b.runPhase(ctx, n); err != nil {
			return fmt.Errorf("phase %d: %w", n, err)
		}
	}

	fmt.Fprintln(out, "\nEvery task was done, and every phase was begun and ended together. Fin.")
	return nil
}

// runPhase fills the queue, lets the workers in, and waits until all of them have ended, and have
// reported all tasks: their reports may come later than the end of the phase. In the second phase
// it kills one.
func (b *batch) runPhase(ctx context.Context, n int) error {
	var items [][]byte
	for i := range tasks {
		items = append(items, fmt.Appendf(nil, "task-%d.%d", n, i+1))
	}

	if _, err := b.tasks.OfferAll(ctx, items); err != nil {
		return err
	}

	fmt.Fprintln(b.out)
	if err := b.callRoll(ctx, n); err != nil {
		return err
	}
	entry, err := b.phase.Enter(ctx)
	if err != nil {
		return err
	}

	b.tell(fmt.Sprintf("phase %d", n), "begins", fmt.Sprintf("with %d members", len(entry.Members())))
	left := make(chan error, 1)
	go func() { left <- entry.Leave(ctx) }()

	for over, joined := false, 0; !over || joined < workers || len(b.done) < n*tasks; {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)

		case r := <-b.reports:
			switch {
			case r.what == "joins":
				joined++
				if r.by.late {
					b.tell(r.by.name, "joins", "phase "+r.object)
				}
			case r.what == "ends":
				b.progress(n, r)
			case r.what == "begins" && r.object == fatal && r.attempt == 1:
				if err := b.replace(r); err != nil {
					return err
				}
			}

		case err := <-left:
			if err != nil {
				return err
			}
			over = true
		}
	}

	if rest, err := b.tasks.Len(ctx); err != nil || rest > 0 {
		return errors.Join(err, fmt.Errorf("%d tasks were left", rest))
	}

	b.tell(fmt.Sprintf("phase %d", n), "ends", fmt.Sprintf("%d tasks were done", tasks))
	return nil
}

// callRoll prints which workers the phase waits for, if any.
func (b *batch) callRoll(ctx context.Context, n int) error {
	waiters, err := b.phase.Waiting(ctx)
	if err != nil {
		return err
	}
	come := make(map[string]bool)
	for _, w := range waiters {
		come[string(w.Data)] = true
	}

	var missing []string
	for _, w := range b.workers {
		if !w.killed && !come[w.name] {
			missing = append(missing, w.name)
		}
	}
	if len(missing) > 0 {
		b.tell(fmt.Sprintf("phase %d", n), "waits for",
			fmt.Sprintf("%s; %d of %d have come", strings.Join(missing, ", "), len(waiters), workers))
	}
	return nil
}

// progress notes that a task is done. It prints every sixth one, and those that were begun more
// than once.
func (b *batch) progress(n int, r report) {
	if r.attempt > 1 {
		b.tell(r.by.name, "has done", fmt.Sprintf("%s, at attempt %d: its session expired, and the task came back", r.object, r.attempt))
	}

	again := b.done[r.object]
	b.done[r.object] = true
	if done := len(b.done) - (n-1)*tasks; done%6 == 0 && !again {
		b.tell(fmt.Sprintf("phase %d", n), "goes on", fmt.Sprintf("%2d of %d", done, tasks))
	}
}

// replace kills a worker that has just begun a task, and starts another one. The barrier has no
// place for that one before the next phase.
func (b *batch) replace(r report) error {
	r.by.killed = true
	if err := r.by.cmd.Process.Kill(); err != nil {
		return err
	}
	b.tell(r.by.name, "is killed", "while it is at "+r.object)
	return b.start(fmt.Sprintf("worker %d", len(b.workers)+1), true)
}

// start starts a copy of this program as a worker.
func (b *batch) start(name string, late bool) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}

	w := &worker{name: name, late: late, cmd: exec.Command(self, "-worker", name, "-servers", b.servers, "-path", b.path,
		"-timeout", sessionTimeout.String())}
	w.cmd.Stderr = os.Stderr
	lines, err := w.cmd.StdoutPipe()
	if err != nil {
		return err
	}

	if w.stdin, err = w.cmd.StdinPipe(); err != nil {
		return err
	}
	if err := w.cmd.Start(); err != nil {
		return err
	}

	b.workers = append(b.workers, w)
	b.tell(name, "starts", "")
	w.wait.Go(func() {
		for lines := bufio.NewScanner(lines); lines.Scan(); {
			r := report{by: w}
			fmt.Sscanf(lines.Text(), "%s %s attempt %d", &r.what, &r.object, &r.attempt)
			b.reports <- r
		}
	})

	return nil
}

// end ends all workers, and removes their nodes from ZooKeeper. If all went well, they must exit
// without an error.
func (b *batch) end(well bool) (err error) {
	go func() {
		for range b.reports { // no one else reads them now
		}
	}()

	for _, w := range b.workers {
		w.stdin.Close()
		grace := timeout
		if !well {
			grace = 5 * time.Second
		}
		kill := time.AfterFunc(grace, func() { w.cmd.Process.Kill() })
		w.wait.Wait()
		failed := w.cmd.Wait()
		kill.Stop()
		if failed != nil && well && !w.killed {
			err = errors.Join(err, fmt.Errorf("%s: %w", w.name, failed))
		}
	}

	close(b.reports)
	ctx, cancel := context.WithTimeoutCause(context.Background(), timeout, errTooSlow)
	defer cancel()
	return errors.Join(err, b.remove(ctx, b.path))
}

// remove deletes a node and all below it. Nodes of a killed worker go with its session.
func (b *batch) remove(ctx context.Context, path string) error {
	s, err := b.client.Session(ctx)
	if err != nil {
		return err
	}

	for {
		children, err := protocol.Do(ctx, s, func(c *zk.Conn) ([]string, error) {
			children, _, err := c.Children(s.Path(path))
			return children, err
		})

		if errors.Is(err, zk.ErrNoNode) {
			return nil
		} else if err != nil {
			return err
		}

		for _, child := range children {
			if err := b.remove(ctx, path+"/"+child); err != nil {
				return err
			}
		}

		_, err = protocol.Do(ctx, s, func(c *zk.Conn) (struct{}, error) {
			return struct{}{}, c.Delete(s.Path(path), -1)
		})

		if !errors.Is(err, zk.ErrNotEmpty) {
			if errors.Is(err, zk.ErrNoNode) {
				err = nil
			}
			return err
		}
	}
}

// tell prints what an actor does, when, and a remark.
func (b *batch) tell(who, what, more string) {
	text := fmt.Sprintf("  %6.3f s  %-8s  %-9s  %s", time.Since(b.began).Seconds(), who, what, more)
	fmt.Fprintln(b.out, strings.TrimRight(text, " "))
}
