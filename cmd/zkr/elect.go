package main

import (
	"context"
	"slices"

	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/survey"
	"github.com/zkrecipes/zkrecipes/election"
	"github.com/zkrecipes/zkrecipes/protocol"
)

func newElectCommand(a *app) *cobra.Command {
	var value, next string
	var cmd *cobra.Command
	cmd = a.runner("elect PATH", "Run a command while being the leader",
		func(ctx context.Context, c *protocol.Client, args []string) (held, error) {
			e := election.New(c, args[0])
			defer a.announce(ctx, "the leadership", c, args[0])()

			content := []byte(value)
			if !cmd.Flags().Changed("value") {
				content = a.owner.Data()
			}
			term, err := e.Campaign(ctx, content)
			if err != nil {
				return held{}, err
			}
			return holding(args[0], term, func(ctx context.Context) error { return resignTo(ctx, e, term, next) }), nil
		})
	cmd.Flags().StringVar(&value, "value", "", "what others learn of the leader, such as an address (default host, process and the name of the command, in JSON)")
	cmd.Flags().StringVar(&next, "resign-to", "", "who leads next, if it is a candidate when the command ends: its host, value or node")
	return cmd
}

// resignTo ends a term. The first candidate with this host, value or node leads next, or, if there is
// none, the first one.
func resignTo(ctx context.Context, e *election.Election, term *election.Term, next string) error {
	if next == "" {
		return term.Resign(ctx)
	}
	all, err := e.Candidates(ctx)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(all, func(c election.Candidate) bool {
		return c.Node != term.Node() && slices.Contains([]string{c.Node, string(c.Value), survey.OwnerOf(c.Value).Host}, next)
	})
	if i < 0 {
		return term.Resign(ctx)
	}
	return term.ResignTo(ctx, all[i].Node)
}
