package main

import (
	"cmp"
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
			return show(ctx, g.Members, a.printMembers)
		}

		// Lists of members are separated by an empty line, but JSON is not.
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

func newGroupJoinCommand(a *app) *cobra.Command {
	var data string
	var try bool
	var cmd *cobra.Command
	cmd = a.runner("join PATH NAME", "Run a command as a member of a group",
		func(ctx context.Context, c *protocol.Client, args []string) (held, error) {
			path, name := args[0], args[1]
			defer a.waiting(func() string { return "waiting to join " + path })()
			content := []byte(data)
			if !cmd.Flags().Changed("data") {
				content = a.owner.Data()
			}

			// Get the session first. The member then joins in this session, or in a later session
			// if this one has ended.
			s, err := c.Session(ctx)
			if err != nil {
				return held{}, err
			}
			g := group.New(c, path)
			m, err := either(a, try, g.TryJoin, g.Join)(ctx, name, content)
			if err != nil {
				return held{}, err
			}
			return membership(s, m, path), nil
		})
	cmd.Flags().StringVar(&data, "data", "", "what others learn of the member, such as an address (default host, process and the name of the command, in JSON)")
	cmd.Flags().BoolVar(&try, "try", false, "do not wait: fail if another member has the name")
	return cmd
}

// membership returns a held member that joined in the session s. A lost member joins again by
// itself, but the command has ended by then.
func membership(s *protocol.Session, m *group.Member, path string) held {
	// A member that was lost once counts as lost, even if it has joined again.
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range m.Changes() {
			if !m.Joined() {
				return
			}
		}
	}()

	return held{
		path: path, node: m.Name(), done: done,
		err: func() error {
			select {
			case <-done:
			default:
				if m.Joined() {
					return s.Err()
				}
			}
			return cmp.Or(s.Err(), fmt.Errorf("%s: member %s: %w", path, m.Name(), protocol.ErrLost))
		},
		// Leave waits for a name that a lost session still has. Don't wait for servers that are
		// silent.
		release: func(ctx context.Context) error {
			ctx, cancel := context.WithCancelCause(ctx)
			defer cancel(nil)
			go func() {
				select {
				case <-s.Done():
					cancel(s.Err())
				case <-ctx.Done():
				}
			}()
			return m.Leave(ctx)
		},
	}
}
