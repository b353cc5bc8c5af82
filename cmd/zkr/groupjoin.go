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

			// The session comes first: the member joins in this one, or in a later one after this one
			// has ended.
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
			if err := s.Err(); err != nil {
				return err
			}
			select {
			case <-done:
			default:
				if m.Joined() {
					return nil
				}
			}
			return fmt.Errorf("%s: member %s: %w", path, m.Name(), protocol.ErrLost)
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
