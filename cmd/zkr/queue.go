package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/queue"
)

func newQueueCommand(a *app) *cobra.Command {
	length := a.queueVerb("len PATH", "Print how many elements a queue has, reserved and delayed ones included",
		func(ctx context.Context, q *queue.Queue, _ []string) error {
			return show(ctx, q.Len, func(n int) error { return a.print(fmt.Sprint(n), map[string]int{"length": n}) })
		})

	var raw bool
	peek := a.queueVerb("peek PATH", "Print the next element of a queue, and leave it there",
		func(ctx context.Context, q *queue.Queue, _ []string) error {
			return show(ctx, q.Peek, func(data []byte) error { return a.printElement(element{data: data}, raw, "") })
		})
	addRaw(peek, &raw)

	free := a.queueVerb("free PATH ID", "End the reservation of an element, which is delivered again",
		func(ctx context.Context, q *queue.Queue, args []string) error { return q.Free(ctx, args[1]) })
	remove := a.queueVerb("remove PATH ID", "Remove an element, reserved or not",
		func(ctx context.Context, q *queue.Queue, args []string) error { return q.Remove(ctx, args[1]) })

	return verbs("queue", "Offer, take and look at elements of a queue",
		newQueueOfferCommand(a), newQueueTakeCommand(a), newQueueDrainCommand(a), length, peek,
		a.queueVerb("list PATH", "Print what is known of each element, in the order of delivery", a.listQueue),
		free, remove, newQueueRedriveCommand(a), newQueueWorkCommand(a))
}

// queueVerb returns a command that does one thing to the queue at PATH. It sees all elements, with
// a priority (as kazoo's have) or without.
func (a *app) queueVerb(use, short string, do func(ctx context.Context, q *queue.Queue, args []string) error) *cobra.Command {
	return a.verb(use, short, func(ctx context.Context, c *protocol.Client, args []string) error {
		return do(ctx, queue.New(c, args[0], queue.WithPriorities()), args)
	})
}

func newQueueRedriveCommand(a *app) *cobra.Command {
	var most int
	cmd := a.verb("redrive PATH DEAD", "Move dead letters back to the queue that they come from",
		func(ctx context.Context, c *protocol.Client, args []string) error {
			if err := recipe.ValidatePath(args[1]); err != nil || most < 1 {
				return usage(errors.Join(err, fmt.Errorf("queue redrive: DEAD must be a path, and --most %d at least 1", most)))
			}
			n, err := queue.New(c, args[0]).Redrive(ctx, queue.New(c, args[1]), most)
			return errors.Join(err, a.print(fmt.Sprint(n), map[string]int{"moved": n}))
		})
	cmd.Flags().IntVar(&most, "most", 1000, "how many to move at most")
	return cmd
}

// listQueue prints a line for each element.
func (a *app) listQueue(ctx context.Context, q *queue.Queue, _ []string) error {
	header := table{{"ID", "SIZE", "SINCE", "ATTEMPTS", "STATE"}}
	return list(a, header, q.List(ctx), func(i queue.Info) (any, []string) {
		state := "waits"
		switch {
		case !i.HeldSince.IsZero():
			state = fmt.Sprintf("held by session %s since %s", sessionID(i.Holder), moment(i.HeldSince))
		case !i.Due.IsZero():
			state = "due " + moment(i.Due)
		}

		if why := cmp.Or(i.Origin, i.Reason); why != "" {
			state += "; failed: " + why
		}

		return struct {
				ID       string    `json:"id"`
				Size     int       `json:"size"`
				Since    time.Time `json:"since,omitzero"`
				Attempts int       `json:"attempts,omitempty"`
				Session  string    `json:"session,omitempty"`
				Held     time.Time `json:"held_since,omitzero"`
				Due      time.Time `json:"due,omitzero"`
				Priority int       `json:"priority"`
				Reason   string    `json:"reason,omitempty"`
				Origin   string    `json:"origin,omitempty"`
			}{i.ID, i.Size, i.Since.UTC(), i.Attempts, sessionID(i.Holder), i.HeldSince.UTC(), i.Due.UTC(), i.Priority, i.Reason, i.Origin},
			[]string{printable(i.ID), fmt.Sprint(i.Size), moment(i.Since), fmt.Sprint(i.Attempts), harmless(state)}
	})
}
