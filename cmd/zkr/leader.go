package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/election"
	"github.com/zkrecipes/zkrecipes/protocol"
)

func newLeaderCommand(a *app) *cobra.Command {
	cmd := a.verb("leader PATH", "Show who leads", func(ctx context.Context, c *protocol.Client, args []string) error {
		e := election.New(c, args[0])
		if a.watch {
			return printEach(e.Observe(ctx), a.printLeader)
		}
		leader, err := e.Leader(ctx)
		if errors.Is(err, election.ErrNoLeader) && a.wait > 0 {
			leader, err = a.awaitLeader(ctx, e, args[0])
		}
		if errors.Is(err, election.ErrNoLeader) {
			return &exitError{status: exitBusy, err: err}
		} else if err != nil {
			return err
		}
		return a.printLeader(leader)
	})
	cmd.Flags().BoolVar(&a.watch, "watch", false, "go on, and print every change")
	return cmd
}

// awaitLeader returns the first leader that there is.
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
