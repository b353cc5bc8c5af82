package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/election"
	"github.com/zkrecipes/zkrecipes/protocol"
)

func newElectCommand(a *app) *cobra.Command {
	var value string
	cmd := &cobra.Command{
		Use:   "elect PATH [flags] -- COMMAND [ARGUMENT…]",
		Short: "Run a command while being the leader",
		Long: `Elect campaigns for the leadership at PATH, runs the command once it is the leader, and resigns. The
others learn the value with "zkr leader". To stand again after a loss, run zkr in a loop, or by a
service manager that starts it again.` + holdHelp,
		Args: operandsAndCommand("PATH"),
		RunE: func(cmd *cobra.Command, args []string) error {
			path, argv := args[0], args[1:]
			return a.hold(cmd.Context(), argv, func(ctx context.Context, c *protocol.Client) (held, error) {
				e := election.New(c, path)
				defer a.announce(ctx, "the leadership "+path, func(ctx context.Context) ([]contender, error) {
					return candidates(ctx, e)
				})()

				content := []byte(value)
				if !cmd.Flags().Changed("value") {
					content = owner(argv)
				}
				term, err := e.Campaign(ctx, content)
				if err != nil {
					return held{}, err
				}
				return held{
					path: path, node: term.Node(), token: term.Token(),
					done: term.Done(), err: term.Err, release: term.Resign,
				}, nil
			})
		},
	}
	cmd.Flags().StringVar(&value, "value", "", "what others learn of the leader, such as an address (default host, process and command, in JSON)")
	a.addGraceFlag(cmd)
	return cmd
}

func candidates(ctx context.Context, e *election.Election) ([]contender, error) {
	line, err := e.Candidates(ctx)
	var all []contender
	for _, c := range line {
		all = append(all, contender{c.Node, c.Value, c.Since})
	}
	return all, err
}
