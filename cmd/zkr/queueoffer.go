package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/queue"
)

// offering has the flags of queue offer.
type offering struct {
	lines bool
	key   string
	after time.Duration
}

func newQueueOfferCommand(a *app) *cobra.Command {
	var o offering
	cmd := a.verb("offer PATH [DATA…]", "Append elements to a queue, from arguments or standard input",
		func(ctx context.Context, c *protocol.Client, args []string) error {
			q, data := queue.New(c, args[0]), args[1:]
			if o.lines {
				return a.offerLines(ctx, q, o)
			}

			if len(data) == 0 {
				all, err := a.readInput()
				if err != nil {
					return err
				}
				data = []string{string(all)}
			}

			for _, d := range data {
				if err := a.offer(ctx, q, o, []byte(d)); err != nil {
					return err
				}
			}
			return nil
		})
	cmd.PreRunE = func(_ *cobra.Command, args []string) error {
		data, keyed := args[1:], cmd.Flags().Changed("key")
		switch {
		case o.lines && len(data) > 0:
			return usagef("queue offer: --lines reads standard input: give no DATA")
		case keyed && (o.lines || len(data) > 1):
			return usagef("queue offer: --key is for one element")
		case keyed && o.key == "":
			return usagef("queue offer: --key is empty")
		case keyed && o.after != 0:
			return usagef("queue offer: --key and --after exclude each other")
		case o.after < 0:
			return usagef("queue offer: --after %v: must not be negative", o.after)
		}

		return nil
	}
	cmd.Flags().BoolVar(&o.lines, "lines", false, "offer each line of standard input as it comes")
	cmd.Flags().StringVar(&o.key, "key", "", "offer the element unless one with this key was offered before")
	cmd.Flags().DurationVar(&o.after, "after", 0, "do not deliver the elements before that long")
	return cmd
}

// offerLines offers each line as it comes. It stops at a line that is too long.
func (a *app) offerLines(ctx context.Context, q *queue.Queue, o offering) error {
	lines := bufio.NewScanner(a.stdin)
	lines.Buffer(nil, recipe.MaxData+1)
	for lines.Scan() {
		// The scanner reuses its buffer.
		if err := a.offer(ctx, q, o, append([]byte{}, lines.Bytes()...)); err != nil {
			return err
		}
	}

	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		return fmt.Errorf("%w: a line of more than %d bytes", protocol.ErrTooLarge, recipe.MaxData)
	} else if err != nil {
		return fmt.Errorf("read standard input: %w", err)
	}
	return nil
}

// offer offers one element and prints its ID.
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

	// An element whose key was offered before has no ID.
	if err != nil || id == "" && !a.json {
		return err
	}
	return a.print(printable(id), map[string]string{"id": id})
}
