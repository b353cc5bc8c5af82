package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/queue"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

// show fills the queue, starts the workers, kills one, and waits until no mail is left.
func show(ctx context.Context, out io.Writer) error {
	server, err := embedded.Start(embedded.Config{TickTime: sessionTimeout / 4})
	if err != nil {
		return err
	}
	defer server.Close()
	client, err := protocol.Connect(ctx, server.ConnectString())
	if err != nil {
		return err
	}
	defer client.Close()

	letters, failed := mail(client)
	var all [][]byte
	for _, to := range []string{"to ann", "to bob", fatal, dead, "to eve", "to fred", "to gil", "to hal"} {
		all = append(all, []byte(to))
	}
	if _, err := letters.OfferAll(ctx, all); err != nil {
		return err
	}
	fmt.Fprintf(out, "%d mails are in the queue.\n", len(all))

	var team team
	defer team.end()
	report := &printer{out: out}
	for i := range 3 {
		if err := team.start(fmt.Sprintf("worker %d", i+1), server.ConnectString(), report); err != nil {
			return err
		}
	}
	if err := letters.Drained(ctx); err != nil { // none is left, reserved or not
		return err
	}
	if err := team.end(); err != nil {
		return err
	}

	fmt.Fprintln(out, "The queue is drained. In the dead letters:")
	if err := list(ctx, out, failed); err != nil {
		return err
	}
	fmt.Fprintln(out, "Fin.")
	return nil
}

// list prints the dead letters. To send them again, offer their data to the queue.
func list(ctx context.Context, out io.Writer, failed *queue.Queue) error {
	for letter, err := range failed.List(ctx) {
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "  from %s\n", letter.Origin)
	}
	return nil
}

// A printer prints lines of several workers.
type printer struct {
	mu  sync.Mutex
	out io.Writer
}

func (p *printer) printf(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.out, format, args...)
}

// A team is the processes of the workers.
type team struct {
	workers []*worker
	reading sync.WaitGroup
}

type worker struct {
	*exec.Cmd
	stdin  io.Closer
	killed bool
}

// start starts a copy of this program. It is killed when it begins the fatal mail.
func (t *team) start(name, servers string, report *printer) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	w := &worker{Cmd: exec.Command(self, "-worker", name, "-servers", servers, "-timeout", sessionTimeout.String())}
	w.Stderr = os.Stderr
	printed, err := w.StdoutPipe()
	if err != nil {
		return err
	}
	if w.stdin, err = w.StdinPipe(); err != nil {
		return err
	}
	if err := w.Start(); err != nil {
		return err
	}

	t.workers = append(t.workers, w)
	t.reading.Go(func() {
		for lines := bufio.NewScanner(printed); lines.Scan(); {
			report.printf("  %s %s\n", name, lines.Text())
			if strings.HasSuffix(lines.Text(), fatal+", attempt 1") {
				w.killed = true
				w.Process.Kill()
				report.printf("  %s is killed. Its mail comes back when the servers give it up.\n", name)
			}
		}
	})
	return nil
}

// end tells the workers to end, and waits for them.
func (t *team) end() (err error) {
	for _, w := range t.workers {
		w.stdin.Close()
	}
	t.reading.Wait()
	for _, w := range t.workers {
		if failed := w.Wait(); failed != nil && !w.killed {
			err = errors.Join(err, failed)
		}
	}
	t.workers = nil
	return err
}
