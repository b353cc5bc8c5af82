package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/group"
	"github.com/zkrecipes/zkrecipes/protocol"
)

func newGroupMembersCommand(a *app) *cobra.Command {
	cmd := a.verb("members PATH", "Show the members of a group", func(ctx context.Context, c *protocol.Client, args []string) error {
		g := group.New(c, args[0])
		if !a.watch {
			peers, err := g.Members(ctx)
			if err != nil {
				return err
			}
			return a.printMembers(peers)
		}
		between := ""
		return printEach(g.Watch(ctx), func(peers []group.Peer) error {
			if !a.json {
				fmt.Fprint(a.stdout, between)
			}
			between = "\n"
			return a.printMembers(peers)
		})
	})
	cmd.Flags().BoolVar(&a.watch, "watch", false, "go on, and print all members after every change")
	return cmd
}

func (a *app) printMembers(peers []group.Peer) error {
	type member struct {
		Name    string    `json:"name"`
		Session string    `json:"session,omitempty"`
		Since   time.Time `json:"since,omitzero"`
		content
	}
	members, t := []member{}, table{}
	for _, p := range peers {
		members = append(members, member{p.Name, sessionID(p.Session), p.Since.UTC(), contentOf(p.Data)})
		t = append(t, []string{printable(p.Name), sessionID(p.Session), moment(p.Since), printable(string(p.Data))})
	}
	if a.json {
		return a.printJSON(members)
	}
	return t.write(a.stdout)
}
