package main

import (
	"context"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/semaphore"
)

func newSemaphoreCommand(a *app) *cobra.Command {
	var try bool
	cmd := &cobra.Command{
		Use:   "semaphore PATH N [flags] -- COMMAND [ARGUMENT…]",
		Short: "Run a command as one of at most N at a time",
		Long: `Semaphore waits for one of the N permits at PATH, runs the command while it has it, and gives it back.
All that use PATH have to name the same N.` + holdHelp,
		Args: operandsAndCommand("PATH", "N"),
		RunE: func(cmd *cobra.Command, args []string) error {
			permits, err := positive("N", args[1])
			if err != nil {
				return err
			}
			path, argv := args[0], args[2:]

			return a.hold(cmd.Context(), argv, func(ctx context.Context, c *protocol.Client) (held, error) {
				s := semaphore.New(c, path, permits, semaphore.WithData(owner(argv)))
				defer a.announce(ctx, "a permit of "+path, func(ctx context.Context) ([]contender, error) {
					return contendersOf(s.Contenders(ctx))
				})()

				acquire := s.Acquire
				if try {
					acquire = s.TryAcquire
				}
				p, err := acquire(ctx)
				if err != nil {
					return held{}, err
				}
				return held{
					path: path, node: p.Node(), token: p.Token(),
					done: p.Done(), err: p.Err, release: p.Release,
				}, nil
			})
		},
	}
	cmd.Flags().BoolVar(&try, "try", false, "do not wait: fail if no permit is free")
	a.addGraceFlag(cmd)
	return cmd
}

// positive reads a number of at least 1.
func positive(name, text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return 0, usagef("%s %q: must be a number of at least 1", name, text)
	}
	return n, nil
}
