package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"github.com/zkrecipes/zkrecipes/doublebarrier"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/queue"
)

// work takes part in one phase after the other until standard input ends, which also happens when
// the parent dies. It reports on standard output what it does.
func work(servers, path, name string) error {
	signal.Ignore(os.Interrupt) // it goes to the whole group; the parent handles it
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		io.Copy(io.Discard, os.Stdin)
		cancel()
	}()

	client, err := protocol.Connect(ctx, servers, protocol.WithSessionTimeout(sessionTimeout))
	if err == nil {
		defer client.Close()
		phase, tasks := plan(client, path, name)
		for err == nil {
			err = takePart(ctx, phase, tasks)
		}
	}

	if ctx.Err() != nil { // the parent ended it
		return nil
	}

	return err
}

// takePart waits for the next phase and does tasks of it. A worker that has replaced another one
// learns from the round which phase that is.
func takePart(ctx context.Context, phase *doublebarrier.Barrier, tasks *queue.Queue) error {
	entry, err := phase.Enter(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("joins %d\n", entry.Round())

	working, cancel := entry.Context(ctx)
	defer cancel()
	err = drain(working, tasks)
	return errors.Join(err, entry.Leave(ctx))
}

// drain does tasks until none is left, neither in the queue nor reserved by other workers, which
// may die.
func drain(ctx context.Context, tasks *queue.Queue) error {
	working, stop := context.WithCancel(ctx)
	defer stop()
	drained := make(chan error, 1)
	go func() {
		drained <- tasks.Drained(working)
		stop()
	}()

	err := tasks.Consume(working, 1, do)
	stop()
	if failed := <-drained; failed != nil {
		return errors.Join(err, failed)
	}
	return nil
}

// do does one task, which is acknowledged once do returns nil. If this process dies before that,
// the task goes to another worker.
func do(ctx context.Context, task *queue.Item) error {
	fmt.Printf("begins %s attempt %d\n", task.Data(), task.Attempt())
	takes := 30 * time.Millisecond
	if string(task.Data()) == fatal && task.Attempt() == 1 {
		takes = timeout // it is killed before
	}

	if err := sleep(ctx, takes); err != nil {
		return err
	}

	fmt.Printf("ends %s attempt %d\n", task.Data(), task.Attempt())
	return nil
}

// sleep waits for d, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
