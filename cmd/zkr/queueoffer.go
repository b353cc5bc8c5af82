package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/queue"
)

// offering is what the flags of queue offer say.
type offering struct {
	lines bool
	key   string
	after time.Duration
}

func newQueueOfferCommand(a *app) *cobra.Command {
	var o offering
	cmd := &cobra.Command{
		Use:   "offer PATH [DATA…]",
		Short: "Append elements to a queue, from arguments or standard input",
		Long: `offer appends each DATA to the queue at PATH as an element. Without DATA, the element is all of standard
input, or with --lines each line of it, without its end. It prints the ID of each element.

With --key the element is offered once: an element with the same key that was offered in the last hour,
by whichever client, is enough, and no ID is printed. If offer fails with "outcome unknown", the element
may be in the queue or not; with a key it may be repeated.`,
		Args: func(cmd *cobra.Command, args []string) error {
			return checkOperands(cmd, args[:min(1, len(args))], []string{"PATH"})
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			path, data := args[0], args[1:]
			switch {
			case o.lines && len(data) > 0:
				return usagef("queue offer: --lines reads standard input: give no DATA")
			case cmd.Flags().Changed("key") && (o.lines || len(data) > 1):
				return usagef("queue offer: --key is for one element")
			case cmd.Flags().Changed("key") && o.key == "":
				return usagef("queue offer: --key is empty")
			case o.key != "" && o.after != 0:
				return usagef("queue offer: --key and --after exclude each other")
			case o.after < 0:
				return usagef("queue offer: --after %v: must not be negative", o.after)
			}

			return a.withQueue(cmd, path, func(ctx context.Context, q *queue.Queue) error {
				for _, d := range data {
					if err := a.offer(ctx, q, o, []byte(d)); err != nil {
						return err
					}
				}
				switch {
				case o.lines:
					return a.offerLines(ctx, q, o)
				case len(data) == 0:
					all, err := io.ReadAll(io.LimitReader(a.stdin, protocol.MaxData+1))
					if err != nil {
						return fmt.Errorf("read standard input: %w", err)
					}
					return a.offer(ctx, q, o, all)
				}
				return nil
			})
		},
	}

	cmd.Flags().BoolVar(&o.lines, "lines", false, "offer each line of standard input as it comes")
	cmd.Flags().StringVar(&o.key, "key", "", "offer the element unless one with this key was offered before")
	cmd.Flags().DurationVar(&o.after, "after", 0, "do not deliver the elements before that long")
	return cmd
}

// offerLines offers each line as it comes. A line that is too long ends it.
func (a *app) offerLines(ctx context.Context, q *queue.Queue, o offering) error {
	lines := bufio.NewScanner(a.stdin)
	lines.Buffer(nil, protocol.MaxData+1)
	for lines.Scan() {
		if err := a.offer(ctx, q, o, append([]byte{}, lines.Bytes()...)); err != nil {
			return err
		}
	}
	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		return fmt.Errorf("%w: a line of more than %d bytes", protocol.ErrTooLarge, protocol.MaxData)
	} else if err != nil {
		return fmt.Errorf("read standard input: %w", err)
	}
	return nil
}

// offer offers one element, and prints its ID.
func (a *app) offer(ctx context.Context, q *queue.Queue, o offering, data []byte) error {
	var id string
	var err error
	switch {
	case o.key != "":
		id, err = q.OfferKey(ctx, o.key, data)
	case o.after > 0:
		id, err = q.OfferAfter(ctx, o.after, data)
	default:
		id, err = q.Offer(ctx, data)
	}
	if err != nil {
		return err
	}

	if a.json {
		return a.printJSON(struct {
			ID string `json:"id"`
		}{id})
	}

	if id == "" {
		return nil
	}

	_, err = fmt.Fprintln(a.stdout, printable(id))
	return err
}
