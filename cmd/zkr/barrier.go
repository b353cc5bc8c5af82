package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/barrier"
	"github.com/zkrecipes/zkrecipes/doublebarrier"
	"github.com/zkrecipes/zkrecipes/protocol"
)

func newBarrierCommand(a *app) *cobra.Command {
	var data string
	set := a.verb("set PATH", "Set a barrier: all that wait at it go on waiting until it is removed",
		func(ctx context.Context, c *protocol.Client, args []string) error {
			return barrier.New(c, args[0], barrier.WithData([]byte(data))).Set(ctx)
		})
	set.Flags().StringVar(&data, "data", "", "data for the barrier's node, for others to read")

	remove := a.verb("remove PATH", "Remove a barrier: all that wait at it go on",
		func(ctx context.Context, c *protocol.Client, args []string) error {
			return barrier.New(c, args[0]).Remove(ctx)
		})

	wait := a.verb("wait PATH", "Wait until a barrier is not set: for as long as --wait, or for ever",
		func(ctx context.Context, c *protocol.Client, args []string) error {
			defer a.waiting(func() string { return "waiting for the removal of barrier " + args[0] })()
			return waited(ctx, barrier.New(c, args[0]).Wait(ctx))
		})

	enter := a.runner("enter PATH N", "Run a command together with those of N-1 others",
		func(ctx context.Context, c *protocol.Client, args []string) (held, error) {
			defer a.waiting(func() string { return "waiting for the others to come to " + args[0] })()
			e, err := doublebarrier.New(c, args[0], number(args[1])).Enter(ctx)
			if err != nil {
				return held{}, err
			}
			h := holding(args[0], e, e.Leave)
			h.leaving = "waiting for the others to leave " + args[0]
			return h, nil
		})
	return verbs("barrier", "Set, remove, wait at and enter barriers", enter, set, remove, wait)
}
