// Batch is a job of three phases that four workers do together. They begin and end each phase at
// the same time. In between they do the tasks of a shared queue. In the second phase a worker dies
// while it does a task, and another worker takes over. The task comes back and the others don't
// wait for the dead worker. The new worker finds out which phase it joins:
//
//	go run ./examples/batch
//	go run ./examples/batch -servers zk1:2181,zk2:2181,zk3:2181
//
// The first runs on a ZooKeeper inside the program. The second leaves nothing on the ensemble.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/zkrecipes/zkrecipes/doublebarrier"
	"github.com/zkrecipes/zkrecipes/examples/internal/sandbox"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/queue"
)

const (
	workers = 4
	phases  = 3
	tasks   = 24          // in each phase
	fatal   = "task-2.13" // the first worker that begins it dies
)

func main() {
	servers := flag.String("servers", "", "`host:port,...` of an ensemble (default: a ZooKeeper inside this program)")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Stdout, *servers); err != nil {
		log.Fatal("batch: ", err)
	}
}

// run starts the workers and gives them tasks. It leaves no nodes behind, even if ctx ends.
func run(ctx context.Context, out io.Writer, servers string) (err error) {
	box, err := sandbox.Open(servers, "batch")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, box.Close()) }()

	began, lines := time.Now(), log.New(out, "", 0)
	say := func(who, what string) {
		lines.Printf("  %6.3f s  %-8s  %s", time.Since(began).Seconds(), who, what)
	}
	lines.Printf("%d phases of %d tasks for %d workers, %v.", phases, tasks, workers, box)

	ctx, fail := context.WithCancelCause(ctx)
	var working sync.WaitGroup
	defer working.Wait()
	defer fail(nil)

	var start func(n int)
	start = func(n int) {
		name := fmt.Sprintf("worker %d", n)
		working.Go(func() {
			err := work(ctx, box.Servers, name, say)
			if errors.Is(err, protocol.ErrClosed) {
				say(name, "dies")
				start(workers + 1)
			} else if err != nil {
				fail(fmt.Errorf("%s: %w", name, err))
			}
		})
	}

	for n := range workers {
		start(n + 1)
	}

	client, err := connect(ctx, box.Servers)
	if err != nil {
		return err
	}
	defer client.Close()

	barrier, todo := meet(client, "parent")
	for n := range phases {
		var items [][]byte
		for i := range tasks {
			items = append(items, fmt.Appendf(nil, "task-%d.%d", n+1, i+1))
		}
		if _, err := todo.OfferAll(ctx, items); err != nil {
			return err
		}

		phase := fmt.Sprintf("phase %d", n+1)
		err := barrier.Do(ctx, func(_ context.Context, e *doublebarrier.Entry) error {
			say(phase, fmt.Sprintf("begins with %d members", len(e.Members())))
			return nil
		})
		left, failed := todo.Len(ctx)
		if err := errors.Join(context.Cause(ctx), err, failed); err != nil {
			return err
		}
		say(phase, fmt.Sprintf("ends with %d of %d tasks to do", left, tasks))
	}

	return nil
}

// connect gives up after a while, so that a wrong address shows. The logger gets everything an
// operator should know (an outage, for example).
func connect(ctx context.Context, servers string) (*protocol.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	return protocol.Connect(ctx, servers, protocol.WithLogger(slog.Default()))
}

// meet returns the barrier and the queue at which the processes meet. The parent is also a member
// of each phase, so that no worker begins before the queue is full and the parent knows when all
// have ended.
//
// Phase n is round n of the barrier. The barrier keeps its number, even if all processes are gone
// for a while.
func meet(c *protocol.Client, name string) (*doublebarrier.Barrier, *queue.Queue) {
	return doublebarrier.New(c, "/phase", workers+1, doublebarrier.WithWaiting(), doublebarrier.WithKeptRounds(),
		doublebarrier.WithData([]byte(name))), queue.New(c, "/tasks")
}

// work takes part in one phase after the other, until the last phase has ended or SIGTERM ends ctx.
func work(ctx context.Context, servers, name string, say func(who, what string)) error {
	client, err := connect(ctx, servers)
	if err != nil {
		return err
	}
	defer client.Close()

	barrier, todo := meet(client, name)
	for round := int64(0); round < phases; {
		err := barrier.Do(ctx, func(ctx context.Context, e *doublebarrier.Entry) error {
			round = e.Round()
			say(name, fmt.Sprintf("joins phase %d", round))
			return drain(ctx, todo, func(ctx context.Context, task *queue.Item) error {
				if string(task.Data()) == fatal && task.Attempt() == 1 {
					client.Close() // the death of a process ends its session
				} else if task.Attempt() > 1 {
					say(name, fmt.Sprintf("does %s, attempt %d", task.Data(), task.Attempt()))
				}
				return do(ctx)
			})
		})
		if err != nil {
			return err
		}
	}

	return nil
}

// drain does tasks until the queue is empty and no worker has a task reserved. (A worker can die,
// and then its task comes back.)
func drain(ctx context.Context, todo *queue.Queue, do func(context.Context, *queue.Item) error) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()

	drained := make(chan error, 1)
	go func() {
		drained <- todo.Drained(ctx)
		stop()
	}()
	err := todo.Consume(ctx, 1, do) // if do returns nil, the task is acknowledged
	stop()
	if failed := <-drained; failed != nil {
		return errors.Join(err, failed)
	}

	return nil
}

// do stands for the work. It ends early if ctx does, because then the worker has lost the task or
// its place.
func do(ctx context.Context) error {
	select {
	case <-time.After(10 * time.Millisecond):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
