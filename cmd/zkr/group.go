package main

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/group"
)

func newGroupCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "group", Short: "Join a group, and see who is in it", RunE: needsSubcommand}
	cmd.AddCommand(newGroupJoinCommand(a), newGroupMembersCommand(a))
	return cmd
}

// needsSubcommand is what a command does that has others and no verb of its own.
func needsSubcommand(cmd *cobra.Command, args []string) error {
	var names []string
	for _, sub := range cmd.Commands() {
		names = append(names, sub.Name())
	}

	if len(args) > 0 {
		return usagef("%s: unknown command %q: must be one of %s", cmd.CommandPath(), args[0], strings.Join(names, ", "))
	}
	return usagef("%s: needs one of %s", cmd.CommandPath(), strings.Join(names, ", "))
}

func newGroupMembersCommand(a *app) *cobra.Command {
	var watch bool
	cmd := &cobra.Command{
		Use:   "members PATH",
		Short: "Show the members of a group",
		Long: `members prints the members of the group at PATH in order of joining, one a line: name, session, since
when by the server's clock, and data. With --watch it prints all of them again after every change, after
an empty line. A change of a member's data alone is none.

With --json each list is one line, an array of objects with "name", "session", "since", and "data", or
"data_base64" for data that are not text. "session" and "since" are missing if the server hides them.`,
		Args: operands("PATH"),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := a.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer client.Close()
			g := group.New(client, args[0])

			if !watch {
				ctx, cancel := a.bound(cmd.Context())
				defer cancel()
				peers, err := g.Members(ctx)
				if err != nil {
					return err
				}
				return a.printMembers(peers)
			}
			ctx, cancel := untilInterrupted(cmd.Context())
			defer cancel()
			first := true
			for peers, err := range g.Watch(ctx) {
				if err == nil && !first && !a.json {
					_, err = fmt.Fprintln(a.stdout)
				}
				first = false
				if err == nil {
					err = a.printMembers(peers)
				}
				if err != nil {
					return ended(ctx, err)
				}
			}
			return nil
		},
	}

	cmd.Flags().BoolVar(&watch, "watch", false, "go on, and print all members after every change")
	return cmd
}

func (a *app) printMembers(peers []group.Peer) error {
	if a.json {
		type member struct {
			Name    string     `json:"name"`
			Session string     `json:"session,omitempty"`
			Since   *time.Time `json:"since,omitempty"`
			content
		}
		members := []member{}
		for _, p := range peers {
			members = append(members, member{p.Name, sessionID(p.Session), timeJSON(p.Since), contentOf(p.Data)})
		}
		return a.printJSON(members)
	}

	table := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	for _, p := range peers {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n",
			printable(p.Name), sessionID(p.Session), moment(p.Since), printable(string(p.Data)))
	}
	return table.Flush()
}
