package main

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/survey"
	"github.com/zkrecipes/zkrecipes/protocol"
)

func newWhyCommand(a *app) *cobra.Command {
	var nodes int
	cmd := a.verb("why PATH", "Say in words who holds a path, who waits for whom, and what to do",
		func(ctx context.Context, c *protocol.Client, args []string) error {
			p, err := survey.Look(ctx, c, args[0], survey.Limits{Places: nodes})
			if err != nil {
				return err
			}
			if err := a.findClients(ctx, c, p); err != nil {
				return err
			}
			for place := range p.All() {
				if len(place.Contenders) > 0 || place == p {
					a.explain(place)
				}
			}
			return unread(p)
		})
	addNodes(cmd, &nodes)
	return cmd
}

// explain prints who holds a place, and for whom each waiter waits.
func (a *app) explain(p *survey.Place) {
	say := func(format string, args ...any) { fmt.Fprintln(a.stdout, harmless(fmt.Sprintf(format, args...))) }
	say("%s (%s): %s.", printable(p.Path), p.Kind(), summary(p))

	// In these recipes nobody waits for a particular contender.
	all := map[survey.Recipe]string{survey.DoubleBarrier: "the others to come", survey.Queue: "an element, or for room"}[p.Recipe]
	inLine := make(map[string]string) // the last contender, by key of a once
	for _, c := range p.Contenders {
		// Each key of a once has a line of its own.
		key := ""
		if p.Recipe == survey.Once {
			key = c.Mode
		}

		ahead := cmp.Or(all, inLine[key])
		name := fmt.Sprintf("%s (session %s, node %s)", cmp.Or(who(c), "somebody"), cmp.Or(sessionID(c.Session), "unknown"), printable(c.Node))
		switch {
		case c.State == survey.Member || c.State == survey.Inside:
			say("  %s: %s for %s.", name, c.State, since(c.Since))
		case c.State == survey.Waits && ahead == "":
			say("  %s waits, and nobody is ahead: it is about to be let in. In line for %s.", name, since(c.Since))
		case c.State == survey.Waits:
			say("  %s waits for %s. In line for %s.", name, ahead, since(c.Since))
		case c.Held.IsZero():
			say("  %s %s. In line for %s; since when it holds is unknown.", name, c.State, since(c.Since))
		default:
			say("  %s %s for %s, after %v in line.", name, c.State, since(c.Held), c.Held.Sub(c.Since).Round(time.Second))
		}

		if c.Client != nil {
			say("    Its client: %s.", alive(c.Client))
		}

		if c.Orphan != "" {
			say("    No live contender stands behind it (%s): zkr break %s %s", c.Orphan, p.Path, c.Node)
		}

		if inLine[key] = cmp.Or(who(c), c.Node); c.State == survey.Holds && p.Recipe == survey.Semaphore {
			inLine[key] = "a permit" // whoever gives one back
		}
	}

	for _, note := range notes(p) {
		say("  Note: %s.", note)
	}

	if p.Recipe == survey.Lock && p.Holders() > 0 && len(p.Contenders) > 1 {
		c := p.Contenders[0]
		if p.Use != "election" {
			say("  To ask for it back: zkr revoke %s %s", p.Path, c.Node)
		}
		say("  To take it away at once: zkr break %s %s", p.Path, c.Node)
	}
}

// since returns how long something has lasted (to the second), or that it's unknown.
func since(t time.Time) string {
	if t.IsZero() {
		return "an unknown time"
	}
	return time.Since(t).Round(time.Second).String()
}
