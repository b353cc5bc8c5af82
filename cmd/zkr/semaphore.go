package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/survey"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/semaphore"
)

func newSemaphoreCommand(a *app) *cobra.Command {
	var try bool
	cmd := a.runner("semaphore PATH N", "Run a command as one of at most N at a time",
		func(ctx context.Context, c *protocol.Client, args []string) (held, error) {
			s := semaphore.New(c, args[0], number(args[1]))
			defer a.announce(ctx, "a permit of", c, args[0])()
			p, err := either(a, try, s.TryAcquire, s.Acquire)(ctx)
			return contended(ctx, c, args[0], p, p.Release, err)
		})
	cmd.Flags().BoolVar(&try, "try", false, "do not wait: fail if no permit is free")

	show := a.verb("show PATH", "Print how many permits a semaphore has, how many are held, and how many wait",
		func(ctx context.Context, c *protocol.Client, args []string) error {
			p, err := survey.Look(ctx, c, args[0], survey.Limits{Places: 1})
			if err != nil {
				return err
			}
			if p.Recipe != survey.Semaphore {
				return &exitError{status: exitBusy, err: fmt.Errorf("%s is no semaphore: %s, %s", args[0], p.Recipe, summary(p))}
			}
			return a.print(summary(p), map[string]int{"permits": p.Permits, "held": p.Holders(), "waiting": p.Waiters()})
		})
	cmd.AddCommand(show, a.verb("resize PATH N", "Change how many permits a semaphore has; what is held is not taken away",
		func(ctx context.Context, c *protocol.Client, args []string) error {
			// Resize replaces this size.
			return semaphore.New(c, args[0], 1).Resize(ctx, number(args[1]))
		}))
	return cmd
}
