package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"
	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/survey"
	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/queue"
)

func newBreakCommand(a *app) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "break PATH NODE",
		Short: "Take away what a contender holds, or its place in line",
		Long: `break deletes the node of a contender at PATH, given its name as ps shows it. A holder loses what it holds,
and learns of it, but may still be about to act: what it writes has to be guarded by its token. A waiter of
this toolkit goes to the end of the line. For an element of a queue, it ends the reservation: the element is
delivered again.

break says whose node it is and asks, unless --yes is given. Without a terminal it needs --yes.`,
		Args: operands("PATH", "NODE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.act(cmd, args[0], args[1], yes, deed{
				question: "Break it? It is lost to its holder at once, which may still be about to act",
				do:       breakContender,
			})
		},
	}

	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}

func newRevokeCommand(a *app) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "revoke PATH NODE",
		Short: "Ask the holder of a lock to give it back",
		Long: `revoke asks the contender of a lock at PATH, given the name of its node as ps shows it, to give the lock back.
It replaces the data of the node, as Curator's Revoker does. The holder goes on holding until it unlocks, and
nothing forces it to: programs that do not listen hear nothing. break takes the lock away.

revoke says whose node it is and asks, unless --yes is given. Without a terminal it needs --yes.`,
		Args: operands("PATH", "NODE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.act(cmd, args[0], args[1], yes, deed{
				question: "Ask for it back? That replaces the data of its node",
				refuse: func(p *survey.Place) error {
					if p.Recipe != survey.Lock {
						return usagef("%s is a %s: only a lock can be revoked; break takes it away", p.Path, p.Recipe)
					}
					return nil
				},
				do: func(ctx context.Context, client *protocol.Client, p *survey.Place, c *survey.Contender) error {
					return lock.New(client, p.Path).Revoke(ctx, c.Node)
				},
			})
		},
	}

	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}

// A deed is what an operator does to a contender.
type deed struct {
	question string
	refuse   func(*survey.Place) error // may be nil
	do       func(context.Context, *protocol.Client, *survey.Place, *survey.Contender) error
}

// act finds a contender, says who it is, asks, and does it.
func (a *app) act(cmd *cobra.Command, path, node string, yes bool, d deed) error {
	client, err := a.connect(cmd.Context())
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := a.bound(cmd.Context())
	defer cancel()

	p, err := survey.Look(ctx, client, path, survey.Limits{Contenders: 1 << 30})
	if err != nil {
		return err
	}

	c := p.Find(node)
	if c == nil {
		return fmt.Errorf("%s has no contender %s: see zkr ps %s", path, printable(node), path)
	}

	if d.refuse != nil {
		if err := d.refuse(p); err != nil {
			return err
		}
	}

	question := fmt.Sprintf("%s %s: %s %s %s since %s (node %s). %s",
		p.Recipe, printable(path), state(*c), who(*c), sessionID(c.Session), c.Since.Format("2006-01-02 15:04:05"), printable(node), d.question)
	if err := a.confirm(yes, question); err != nil {
		return err
	}
	return d.do(cmd.Context(), client, p, c)
}

// breakContender deletes the node of a contender, or ends a reservation.
func breakContender(ctx context.Context, client *protocol.Client, p *survey.Place, c *survey.Contender) error {
	if p.Recipe == survey.Queue && c.State == survey.Holds {
		err := queue.New(client, p.Path).Free(ctx, c.Node)
		return ignoreGone(err)
	}

	s, err := client.Session(ctx)
	if err != nil {
		return err
	}

	node := p.Path + "/" + c.Node

	// Members of groups use names again: the node may be another one by now.
	if p.Recipe == survey.Group {
		stat, err := s.Exists(ctx, node)
		if err != nil {
			return err
		}
		if stat == nil || stat.Czxid != c.Token {
			return nil
		}
	}
	return ignoreGone(s.Delete(ctx, node, -1))
}

// ignoreGone returns nil if a node was gone already.
func ignoreGone(err error) error {
	if errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	return err
}
