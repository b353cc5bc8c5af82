package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/queue"
)

func newQueueTakeCommand(a *app) *cobra.Command {
	var try, raw bool
	cmd := a.queueVerb("take PATH", "Remove the next element of a queue, and print it",
		func(ctx context.Context, q *queue.Queue, args []string) error {
			stop := a.waiting(func() string { return "waiting for an element of " + args[0] })
			item, err := either(a, try, q.TryReserve, q.Reserve)(ctx)
			stop()
			if err != nil {
				return err
			}
			return a.deliver(context.WithoutCancel(ctx), item, raw, "")
		})
	cmd.PreRunE = func(*cobra.Command, []string) error { return a.canDeliver() }
	cmd.Flags().BoolVar(&try, "try", false, "do not wait: fail if there is no element")
	addRaw(cmd, &raw)
	return cmd
}

// canDeliver returns an error if elements would vanish unasked: they are printed to a closed
// output.
func (a *app) canDeliver() error {
	if isClosed(a.stdout) {
		return usagef("standard output is closed, or the null device opened to read and write, so elements would be lost: to discard them, use >/dev/null")
	}
	return nil
}

// deliver prints an item and acknowledges it. If the item can't be printed, it goes back.
func (a *app) deliver(ctx context.Context, item *queue.Item, raw bool, end string) error {
	err := a.printElement(element{item.ID(), item.Attempt(), item.Data()}, raw, end)
	if err != nil {
		return errors.Join(fmt.Errorf("element %s stays in the queue: %w", item.ID(), err), item.Nack(ctx))
	}
	return item.Ack(ctx)
}

func newQueueDrainCommand(a *app) *cobra.Command {
	var await, raw bool
	cmd := a.queueVerb("drain PATH", "Remove all elements of a queue, and print them",
		func(ctx context.Context, q *queue.Queue, args []string) error {
			if await {
				defer a.waiting(func() string { return "waiting until " + args[0] + " is empty" })()
				return waited(ctx, q.Drained(ctx))
			}
			return a.drain(ctx, q, raw)
		})
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if await {
			return nil
		}

		return a.canDeliver()
	}
	cmd.Flags().BoolVar(&await, "await", false, "take nothing: wait until others have emptied the queue")
	addRaw(cmd, &raw)
	return cmd
}

// drain delivers items until the queue is empty.
func (a *app) drain(ctx context.Context, q *queue.Queue, raw bool) error {
	for {
		item, err := q.TryReserve(ctx)
		if errors.Is(err, queue.ErrEmpty) {
			break
		} else if err != nil {
			return err
		}

		if err := a.deliver(context.WithoutCancel(ctx), item, raw, "\n"); err != nil {
			return err
		}
	}

	// Reserved and delayed elements can't be drained, so say how many there are.
	left, err := q.Len(ctx)
	if err == nil && left > 0 {
		a.note("%s left, reserved or delayed", plural(left, "element"))
	}
	return err
}

const elementHelp = `On a terminal the element is quoted if it has characters that a terminal would not show, and ends with a
newline. Elsewhere, and with --raw, its bytes are written as they are. With --json it is an object with
"data", or "data_base64" for bytes that are not text, and where it was taken "id" and "attempt".`

// An element is an element of a queue in print.
type element struct {
	id      string
	attempt int
	data    []byte
}

func addRaw(cmd *cobra.Command, raw *bool) {
	cmd.Flags().BoolVar(raw, "raw", false, "write the bytes as they are to a terminal, too")
}

// printElement writes an element to stdout. end follows raw elements.
func (a *app) printElement(e element, raw bool, end string) error {
	if a.json {
		return a.printJSON(struct {
			ID      string `json:"id,omitempty"`
			Attempt int    `json:"attempt,omitempty"`
			content
		}{e.id, e.attempt, contentOf(e.data)})
	}

	if raw || !isTerminal(a.stdout) {
		_, err := fmt.Fprintf(a.stdout, "%s%s", e.data, end)
		return err
	}

	_, err := fmt.Fprintln(a.stdout, printable(string(e.data)))
	return err
}
