package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/doublebarrier"
	"github.com/zkrecipes/zkrecipes/protocol"
)

func newBarrierEnterCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "enter PATH N [flags] -- COMMAND [ARGUMENT…]",
		Short: "Run a command together with those of N-1 others",
		Long: `Enter waits until N have come to the barrier at PATH, and runs the command. Then it waits until the
commands of all have ended, and returns the status of its own. With --wait, it gives up and leaves if the
others have not come by then. ZKR_TOKEN is the same for all of a round.` + holdHelp,
		Args: operandsAndCommand("PATH", "N"),
		RunE: func(cmd *cobra.Command, args []string) error {
			n, err := positive("N", args[1])
			if err != nil {
				return err
			}
			path, argv := args[0], args[2:]

			return a.hold(cmd.Context(), argv, func(ctx context.Context, c *protocol.Client) (held, error) {
				defer a.waiting(func() string { return "waiting for the others to come to " + path })()
				e, err := doublebarrier.New(c, path, n).Enter(ctx)
				if err != nil {
					return held{}, err
				}
				return held{
					path: path, node: e.Node(), token: e.Token(),
					done: e.Done(), err: e.Err, release: e.Leave,
					leaving: "waiting for the others to leave " + path,
				}, nil
			})
		},
	}
	a.addGraceFlag(cmd)
	return cmd
}
