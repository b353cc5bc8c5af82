package main

import (
	"context"
	"errors"
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

			// Without a value, others see who leads. The mark tells this node from a lock's.
			content := []byte(value)
			if !cmd.Flags().Changed("value") {
				candidate := a.owner
				candidate.Candidate = true
				content = candidate.Data()
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

// resignTo ends a term in favour of the first candidate with this host, value or node. Without such
// a candidate, the first in line leads next.
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

func newLeaderCommand(a *app) *cobra.Command {
	cmd := a.verb("leader PATH", "Show who leads", func(ctx context.Context, c *protocol.Client, args []string) error {
		e := election.New(c, args[0])
		if a.watch {
			return printEach(e.Observe(ctx), a.printLeader)
		}

		leader, err := e.Leader(ctx)

		// Without --wait, report the vacancy at once.
		if errors.Is(err, election.ErrNoLeader) && a.wait > 0 {
			leader, err = a.awaitLeader(ctx, e, args[0])
		}

		if err != nil {
			return err
		}

		return a.printLeader(leader)
	})
	cmd.Flags().BoolVar(&a.watch, "watch", false, "go on, and print every change")
	return cmd
}

// awaitLeader waits for a leader.
func (a *app) awaitLeader(ctx context.Context, e *election.Election, path string) (election.Leader, error) {
	defer a.waiting(func() string { return "waiting for a leader of " + path })()
	for leader, err := range e.Observe(ctx) {
		if err != nil || !leader.Vacant() {
			return leader, err
		}
	}
	return election.Leader{}, context.Cause(ctx)
}

func (a *app) printLeader(l election.Leader) error {
	text, line := "", struct {
		Vacant bool  `json:"vacant"`
		Token  int64 `json:"token,omitempty"`
		content
	}{Vacant: l.Vacant(), Token: l.Token}
	if !l.Vacant() {
		text, line.content = printable(string(l.Value)), contentOf(l.Value)
	}
	return a.print(text, line)
}
