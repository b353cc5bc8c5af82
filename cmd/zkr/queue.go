package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/queue"
)

func newQueueCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "queue", Short: "Offer, take and look at elements of a queue", RunE: needsSubcommand}
	cmd.AddCommand(
		newQueueOfferCommand(a), newQueueTakeCommand(a), newQueueDrainCommand(a),
		newQueueLenCommand(a), newQueuePeekCommand(a), newQueueWorkCommand(a),
	)
	return cmd
}

// withQueue calls do with the queue at PATH, under a context that --wait bounds.
func (a *app) withQueue(cmd *cobra.Command, path string, do func(ctx context.Context, q *queue.Queue) error) error {
	client, err := a.connect(cmd.Context())
	if err != nil {
		return err
	}
	defer client.Close()

	ctx, cancel := a.bound(cmd.Context())
	defer cancel()
	return do(ctx, queue.New(client, path))
}

func newQueueLenCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "len PATH",
		Short: "Print how many elements a queue has, reserved and delayed ones included",
		Args:  operands("PATH"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withQueue(cmd, args[0], func(ctx context.Context, q *queue.Queue) error {
				n, err := q.Len(ctx)
				if err != nil {
					return err
				}
				if a.json {
					return a.printJSON(struct {
						Length int `json:"length"`
					}{n})
				}
				_, err = fmt.Fprintln(a.stdout, n)
				return err
			})
		},
	}
}

func newQueuePeekCommand(a *app) *cobra.Command {
	var raw bool
	cmd := &cobra.Command{
		Use:   "peek PATH",
		Short: "Print the next element of a queue, and leave it there",
		Long: `peek prints the first element that could be taken, and leaves it there. If there is none it fails with
status 75.

` + elementHelp,
		Args: operands("PATH"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withQueue(cmd, args[0], func(ctx context.Context, q *queue.Queue) error {
				data, err := q.Peek(ctx)
				if err != nil {
					return err
				}
				return a.printElement(element{data: data}, raw, "")
			})
		},
	}

	addRaw(cmd, &raw)
	return cmd
}
