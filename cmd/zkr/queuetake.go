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
	cmd := &cobra.Command{
		Use:   "take PATH",
		Short: "Remove the next element of a queue, and print it",
		Long: `take prints the next element of the queue at PATH, and removes it once it is written. If it cannot be
written, or take ends before that, the element stays in the queue. If take fails with status 76, it was
written and may be delivered again.

take waits for an element, for as long as --wait says. With --try it fails with status 75 if there is none.

` + elementHelp,
		Args: operands("PATH"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.canDeliver(); err != nil {
				return err
			}
			return a.withQueue(cmd, args[0], func(ctx context.Context, q *queue.Queue) error {
				reserve := q.Reserve
				if try {
					reserve = q.TryReserve
				}
				stop := a.waiting(func() string { return "waiting for an element of " + args[0] })
				item, err := reserve(ctx)
				stop()
				if err != nil {
					return err
				}
				return a.deliver(context.WithoutCancel(ctx), item, raw, "")
			})
		},
	}

	cmd.Flags().BoolVar(&try, "try", false, "do not wait: fail if there is no element")
	addRaw(cmd, &raw)
	return cmd
}

// canDeliver returns an error if what is printed would vanish though the user has not said so.
func (a *app) canDeliver() error {
	if isClosed(a.stdout) {
		return usagef("standard output is closed, or the null device opened to read and write, so elements would be lost: to discard them, use >/dev/null")
	}
	return nil
}

// deliver prints an item and acknowledges it, or gives it back if it cannot be printed.
func (a *app) deliver(ctx context.Context, item *queue.Item, raw bool, end string) error {
	err := a.printElement(element{item.ID(), item.Attempt(), item.Data()}, raw, end)
	if err != nil {
		return errors.Join(fmt.Errorf("element %s stays in the queue: %w", item.ID(), err), item.Nack(ctx))
	}
	return item.Ack(ctx)
}

func newQueueDrainCommand(a *app) *cobra.Command {
	var await, raw bool
	cmd := &cobra.Command{
		Use:   "drain PATH",
		Short: "Remove all elements of a queue, and print them",
		Long: `drain prints the elements of the queue at PATH, one after the other, and removes each once it is written,
until there is none that it could take. Elements that others have reserved, or that are delayed, stay: a
note says how many. Where bytes are written as they are, each element is followed by a newline; use --json
for elements that have some themselves.

With --await it takes nothing, and waits until consumers have emptied the queue.

` + elementHelp,
		Args: operands("PATH"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.canDeliver(); err != nil && !await {
				return err
			}
			return a.withQueue(cmd, args[0], func(ctx context.Context, q *queue.Queue) error {
				if await {
					defer a.waiting(func() string { return "waiting until " + args[0] + " is empty" })()
					return q.Drained(ctx)
				}
				return a.drain(ctx, q, raw)
			})
		},
	}

	cmd.Flags().BoolVar(&await, "await", false, "take nothing: wait until others have emptied the queue")
	addRaw(cmd, &raw)
	return cmd
}

// drain delivers items until there are none.
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

	left, err := q.Len(ctx)
	if err == nil && left > 0 {
		a.note("%s left, reserved or delayed", plural(left, "element"))
	}
	return err
}
