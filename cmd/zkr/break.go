package main

import (
	"context"
	"encoding/json"
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

// A deed is something that an operator does to a contender.
type deed func(ctx context.Context, client *protocol.Client, p *survey.Place, c *survey.Contender, reason string) error

// deedCommand returns a command that finds a contender, describes it, asks, and does a deed. --wait
// does not limit the deed.
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
			p.Kind(), printable(path), state(*c), who(*c), sessionID(c.Session), moment(c.Since), printable(node), question)); err != nil {
			return err
		}

		// Complete the deed even if --wait ends now.
		return do(context.WithoutCancel(ctx), client, p, c, reason)
	})
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the node's last data, and so for the servers' transaction logs")
	return cmd
}

// find returns a place and its contender, or nil if the contender isn't there.
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

// record adds the reason for a deed to the data of a contender's node. The servers' transaction
// logs keep it even if the node is deleted next. Without the permission to write, nothing is
// recorded.
func record(ctx context.Context, client *protocol.Client, verb, path string, c *survey.Contender, reason string) {
	var said map[string]any
	_ = json.Unmarshal(c.Data, &said) // nil if it is no object

	// A revocation must leave other data alone, because their library would not understand it.
	s, err := recipe.SessionOf(ctx, client)
	if err != nil || reason == "" || verb == "revoked" && said == nil {
		return
	} else if said == nil {
		said = make(map[string]any)
	}

	said[verb+"_by"], _ = os.Hostname() // empty if the host has none: the reason matters more
	said["reason"] = reason
	data, _ := encodeJSON(said)
	s.Set(ctx, path+"/"+c.Node, data, -1) //nolint:errcheck // see above
}

// revokeContender asks for a lock back.
func revokeContender(ctx context.Context, client *protocol.Client, p *survey.Place, c *survey.Contender, reason string) error {
	if p.Recipe != survey.Lock || p.Use == "election" {
		return usagef("%s is a %s: only a lock can be revoked; break takes it away", p.Path, p.Kind())
	}
	record(ctx, client, "revoked", p.Path, c, reason)
	return lock.New(client, p.Path).Revoke(ctx, c.Node)
}

// breakContender deletes a contender's node or ends a reservation.
func breakContender(ctx context.Context, client *protocol.Client, p *survey.Place, c *survey.Contender, reason string) error {
	if p.Recipe == survey.Queue && c.State == survey.Holds {
		return gone(queue.New(client, p.Path).Free(ctx, c.Node))
	}

	s, err := recipe.SessionOf(ctx, client)
	if err != nil {
		return err
	}

	node := p.Path + "/" + c.Node

	// Members reuse their names, so the node can be another member's by now.
	if p.Recipe == survey.Group {
		if stat, err := s.Exists(ctx, node); err != nil || stat == nil || stat.Czxid != c.Token {
			return err
		}
	}

	record(ctx, client, "broken", p.Path, c, reason)
	return gone(s.Delete(ctx, node, -1))
}

// gone turns the error for a missing node into nil.
func gone(err error) error {
	if errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	return err
}
