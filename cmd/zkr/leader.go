package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/election"
)

func newLeaderCommand(a *app) *cobra.Command {
	var watch bool
	cmd := &cobra.Command{
		Use:   "leader PATH",
		Short: "Show who leads",
		Long: `leader prints the value of the leader of the election at PATH: what it campaigned with.

Without a leader it fails with status 75, or waits for one if --wait is given. With --watch it prints
the leader, and then each change, one a line; an empty line says that there is no leader.

With --json each line is an object with "vacant" (true or false), and for a leader "token" and
"data", or "data_base64" for a value that is not text.`,
		Args: operands("PATH"),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := a.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer client.Close()
			e := election.New(client, args[0])

			if watch {
				ctx, cancel := untilInterrupted(cmd.Context())
				defer cancel()
				for leader, err := range e.Observe(ctx) {
					if err == nil {
						err = a.printLeader(leader)
					}
					if err != nil {
						return ended(ctx, err)
					}
				}
				return nil
			}
			ctx, cancel := a.bound(cmd.Context())
			defer cancel()
			leader, err := e.Leader(ctx)
			if errors.Is(err, election.ErrNoLeader) && a.wait > 0 {
				leader, err = a.awaitLeader(ctx, e, args[0])
			}
			if errors.Is(err, election.ErrNoLeader) {
				return &exitError{exitBusy, err}
			} else if err != nil {
				return err
			}
			return a.printLeader(leader)
		},
	}

	cmd.Flags().BoolVar(&watch, "watch", false, "go on, and print every change")
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
	return election.Leader{}, election.ErrNoLeader
}

func (a *app) printLeader(l election.Leader) error {
	if a.json {
		line := struct {
			Vacant bool  `json:"vacant"`
			Token  int64 `json:"token,omitempty"`
			content
		}{Vacant: l.Vacant(), Token: l.Token}
		if !l.Vacant() {
			line.content = contentOf(l.Value)
		}
		return a.printJSON(line)
	}

	text := ""
	if !l.Vacant() {
		text = printable(string(l.Value))
	}

	_, err := fmt.Fprintln(a.stdout, text)
	return err
}
