package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/group"
	"github.com/zkrecipes/zkrecipes/protocol"
)

func newGroupJoinCommand(a *app) *cobra.Command {
	var data string
	cmd := &cobra.Command{
		Use:   "join PATH NAME [flags] -- COMMAND [ARGUMENT…]",
		Short: "Run a command as a member of a group",
		Long: `Join joins the group at PATH with a name, runs the command, and leaves. If another member has the name,
it fails at once with status 75. There is no ZKR_TOKEN: members have none.` + holdHelp,
		Args: operandsAndCommand("PATH", "NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			path, name, argv := args[0], args[1], args[2:]
			return a.hold(cmd.Context(), argv, func(ctx context.Context, c *protocol.Client) (held, error) {
				defer a.waiting(func() string { return "waiting to join " + path })()
				content := []byte(data)
				if !cmd.Flags().Changed("data") {
					content = owner(argv)
				}

				// The session comes first: the member joins in this one, or in a later one after
				// this one has ended.
				s, err := c.Session(ctx)
				if err != nil {
					return held{}, err
				}
				m, err := group.New(c, path).Join(ctx, name, content)
				if err != nil {
					return held{}, err
				}
				return membership(s, m, path), nil
			})
		},
	}
	cmd.Flags().StringVar(&data, "data", "", "what others learn of the member, such as an address (default host, process and command, in JSON)")
	a.addGraceFlag(cmd)
	return cmd
}

// membership is a member that has been joined in the session s ever since. One that was lost joins
// again by itself. By then the command has ended.
func membership(s *protocol.Session, m *group.Member, path string) held {
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
				return fmt.Errorf("%s: member %s: %w", path, m.Name(), protocol.ErrLost)
			default:
			}

			if err := s.Err(); err != nil {
				return err
			}
			if !m.Joined() {
				return fmt.Errorf("%s: member %s: %w", path, m.Name(), protocol.ErrLost)
			}
			return nil
		},
		// A name that a lost session has is not waited for, however long the servers keep silent.
		release: func(ctx context.Context) error {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			left := make(chan error, 1)
			go func() { left <- m.Leave(ctx) }()
			select {
			case err := <-left:
				return err
			case <-s.Done():
				return fmt.Errorf("%s: member %s: %w", path, m.Name(), s.Err())
			}
		},
	}
}
