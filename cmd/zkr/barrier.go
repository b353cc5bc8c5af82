package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/barrier"
)

func newBarrierCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "barrier", Short: "Set, remove, wait at and enter barriers", RunE: needsSubcommand}

	var data string
	set := a.barrierVerb("set", "Set a barrier: all that wait at it go on waiting until it is removed",
		func(ctx context.Context, b *barrier.Barrier, _ string) error { return b.Set(ctx) }, &data)
	set.Flags().StringVar(&data, "data", "", "data for the barrier's node, for others to read")
	remove := a.barrierVerb("remove", "Remove a barrier: all that wait at it go on",
		func(ctx context.Context, b *barrier.Barrier, _ string) error { return b.Remove(ctx) }, &data)
	wait := a.barrierVerb("wait", "Wait until a barrier is not set: for as long as --wait, or for ever",
		func(ctx context.Context, b *barrier.Barrier, path string) error {
			defer a.waiting(func() string { return "waiting for the removal of barrier " + path })()
			return b.Wait(ctx)
		}, &data)

	cmd.AddCommand(newBarrierEnterCommand(a), set, remove, wait)
	return cmd
}

// barrierVerb returns a command that does one thing to the barrier at PATH, and prints nothing.
func (a *app) barrierVerb(
	name, short string, do func(ctx context.Context, b *barrier.Barrier, path string) error, data *string,
) *cobra.Command {
	return &cobra.Command{
		Use:   name + " PATH",
		Short: short,
		Args:  operands("PATH"),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := a.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer client.Close()

			ctx, cancel := a.bound(cmd.Context())
			defer cancel()
			var options []barrier.Option
			if *data != "" {
				options = append(options, barrier.WithData([]byte(*data)))
			}
			return do(ctx, barrier.New(client, args[0], options...), args[0])
		},
	}
}
