package main

import (
	"cmp"
	"context"
	"math"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// verb returns a command that connects and does one thing. Its context ends with --wait. With
// --watch it ends when the user ends zkr.
func (a *app) verb(
	use, short string, do func(ctx context.Context, c *protocol.Client, args []string) error,
) *cobra.Command {
	return &cobra.Command{Use: use, Short: short, RunE: func(cmd *cobra.Command, args []string) error {
		client, err := a.connect(cmd.Context())
		if err != nil {
			return err
		}
		defer client.Close()

		if a.watch {
			ctx, cancel := untilInterrupted(cmd.Context())
			defer cancel()
			return ended(ctx, do(ctx, client, args))
		}

		ctx, cancel := a.bound(cmd.Context())
		defer cancel()
		return do(ctx, client, args)
	}}
}

// runner returns a command that runs another command while it holds something.
func (a *app) runner(
	use, short string, acquire func(ctx context.Context, c *protocol.Client, args []string) (held, error),
) *cobra.Command {
	return a.running(use, short, func(ctx context.Context, args []string, p program) error {
		return a.under(ctx, func(ctx context.Context, c *protocol.Client) (held, error) { return acquire(ctx, c, args) },
			func(c *protocol.Client, h held, s signals) error { return a.runHeld(ctx, c, h, p, s, a.stdin) })
	})
}

// running returns a command that runs another command. do says how.
func (a *app) running(
	use, short string, do func(ctx context.Context, args []string, p program) error,
) *cobra.Command {
	cmd := &cobra.Command{Use: use + withCommand, Short: short, RunE: func(cmd *cobra.Command, args []string) error {
		dash := cmd.ArgsLenAtDash()

		// If the program can't run, don't even connect.
		p, err := a.lookUp(args[dash:])
		if err != nil {
			return err
		}
		return do(cmd.Context(), args[:dash], p)
	}}
	a.addRunFlags(cmd)
	return cmd
}

// verbs returns a command that only has subcommands.
func verbs(use, short string, all ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, RunE: func(cmd *cobra.Command, args []string) error {
		var names []string
		for _, sub := range cmd.Commands() {
			names = append(names, sub.Name())
		}

		return usagef("%s: needs one of %s, and was given %q", cmd.CommandPath(), strings.Join(names, ", "), strings.Join(args, " "))
	}}
	cmd.AddCommand(all...)
	return cmd
}

const withCommand = " [flags] -- COMMAND [ARGUMENT…]"

// checkArgs validates arguments by the Use of their command ("once PATH KEY", say). A PATH must be
// a valid path, N must be a number of at least 1, and only DATA can be empty.
func checkArgs(cmd *cobra.Command, args []string) error {
	use, runs := strings.CutSuffix(cmd.Use, withCommand)
	if dash := cmd.ArgsLenAtDash(); runs {
		if dash < 0 || dash == len(args) {
			return usagef("%s: needs a command to run: %s", cmd.CommandPath(), cmd.UseLine())
		}

		args = args[:dash]
	}

	// Use marks optional arguments with brackets and repeated arguments with an ellipsis.
	names := strings.Fields(use)[1:]
	least, most := 0, len(names)
	for _, name := range names {
		if name[0] != '[' {
			least++
		}

		if strings.Contains(name, "…") {
			most = math.MaxInt
		}
	}

	if len(args) < least || len(args) > most {
		return usagef("%s: needs %s, and was given %d arguments: %s",
			cmd.CommandPath(), cmp.Or(strings.Join(names, " and "), "none"), len(args), cmd.UseLine())
	}

	for i, arg := range args {
		switch name := strings.Trim(names[min(i, len(names)-1)], "[…]"); {
		case name == "PATH":
			if err := recipe.ValidatePath(arg); err != nil {
				return usagef("%s: %s: %w", cmd.CommandPath(), arg, err)
			}
		case name == "N" && number(arg) < 1:
			return usagef("N %q: must be a number of at least 1", arg)
		case name != "DATA" && arg == "":
			return usagef("%s: %s must not be empty: %s", cmd.CommandPath(), name, cmd.UseLine())
		}
	}
	return nil
}

// either returns yes (which doesn't wait) if the user doesn't want to wait, and no otherwise.
func either[T any](a *app, try bool, yes, no T) T {
	if try || a.noWait {
		return yes
	}
	return no
}

// show prints what get returns.
func show[T any](ctx context.Context, get func(context.Context) (T, error), print func(T) error) error {
	v, err := get(ctx)
	if err != nil {
		return err
	}
	return print(v)
}

// number parses a number. It returns 0 for other text.
func number(text string) int {
	if n, err := strconv.Atoi(text); err == nil {
		return n
	}
	return 0 // also for a number that is too large
}

// untilInterrupted returns a context that ends when the user ends zkr (by a key or a signal). So
// commands that run for ever can clean up.
func untilInterrupted(ctx context.Context) (context.Context, context.CancelFunc) {
	return signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
}

// ended returns nil if err only says that ctx (from untilInterrupted) has ended.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}
