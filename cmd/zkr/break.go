package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/go-zookeeper/zk"
	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/survey"
	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/queue"
)

func newBreakCommand(a *app) *cobra.Command {
	return a.deedCommand("break PATH NODE", "Take away what a contender holds, or its place in line",
		"Break it? It is lost to its holder at once, which may still be about to act", breakContender)
}

func newRevokeCommand(a *app) *cobra.Command {
	return a.deedCommand("revoke PATH NODE", "Ask the holder of a lock to give it back",
		"Ask for it back? That replaces the data of its node", revokeContender)
}

// A deed is what an operator does to a contender.
type deed func(ctx context.Context, client *protocol.Client, p *survey.Place, c *survey.Contender, reason string) error

// deedCommand returns a command that finds a contender, says who it is, asks, and does a deed, which
// --wait does not bound.
func (a *app) deedCommand(use, short, question string, do deed) *cobra.Command {
	var yes bool
	var reason string
	cmd := a.verb(use, short, func(ctx context.Context, client *protocol.Client, args []string) error {
		path, node := args[0], args[1]
		p, c, err := find(ctx, client, path, node)
		if err != nil {
			return err
		}
		if c == nil {
			return fmt.Errorf("%s has no contender %s: see zkr ps %s", path, printable(node), path)
		}
		if err := a.confirm(yes, fmt.Sprintf("%s %s: %s %s %s in line since %s (node %s). %s",
			p.Recipe, printable(path), state(*c), who(*c), sessionID(c.Session), moment(c.Since), printable(node), question)); err != nil {
			return err
		}
		return do(context.WithoutCancel(ctx), client, p, c, reason)
	})
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the node's last data, and so for the servers' transaction logs")
	return cmd
}

// find returns a place, and a contender of it, or nil if that is not there.
func find(ctx context.Context, client *protocol.Client, path, node string) (*survey.Place, *survey.Contender, error) {
	p, err := survey.Look(ctx, client, path, survey.Limits{Contenders: 1 << 30})
	if err != nil {
		return nil, nil, err
	}
	c := p.Find(node)
	if c == nil && p.Misses(node) {
		return nil, nil, unread(p)
	}
	return p, c, nil
}

// record writes to a node what is done to it. It is the node's last data, so it stays in the
// transaction logs of the servers. Without the permission to write, nothing is recorded.
func record(ctx context.Context, client *protocol.Client, verb, node, reason string) {
	by, _ := os.Hostname()
	if s, err := recipe.SessionOf(ctx, client); err == nil && reason != "" {
		data, _ := encodeJSON(map[string]string{verb + "_by": by, "reason": reason})
		s.Set(ctx, node, data, -1) //nolint:errcheck // see above
	}
}

// revokeContender asks for a lock back.
func revokeContender(ctx context.Context, client *protocol.Client, p *survey.Place, c *survey.Contender, reason string) error {
	if p.Recipe != survey.Lock {
		return usagef("%s is a %s: only a lock can be revoked; break takes it away", p.Path, p.Recipe)
	}
	record(ctx, client, "revoked", p.Path+"/"+c.Node, reason)
	return lock.New(client, p.Path).Revoke(ctx, c.Node)
}

// breakContender deletes the node of a contender, or ends a reservation.
func breakContender(ctx context.Context, client *protocol.Client, p *survey.Place, c *survey.Contender, reason string) error {
	if p.Recipe == survey.Queue && c.State == survey.Holds {
		return gone(queue.New(client, p.Path).Free(ctx, c.Node))
	}

	s, err := recipe.SessionOf(ctx, client)
	if err != nil {
		return err
	}

	node := p.Path + "/" + c.Node

	// Members of groups use names again: the node may be another one by now.
	if p.Recipe == survey.Group {
		if stat, err := s.Exists(ctx, node); err != nil || stat == nil || stat.Czxid != c.Token {
			return err
		}
	}
	record(ctx, client, "broken", node, reason)
	return gone(s.Delete(ctx, node, -1))
}

// gone returns nil if a node was gone already.
func gone(err error) error {
	if errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	return err
}
