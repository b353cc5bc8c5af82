package main

import (
	"cmp"
	"context"
	"io/fs"
	"iter"
	"math"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/protocol"
)

// verb returns a command that connects, and does one thing. Its context ends with --wait, or, with
// --watch, when the user ends zkr.
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

// runner returns a command that runs another one while something is held.
func (a *app) runner(
	use, short string, acquire func(ctx context.Context, c *protocol.Client, args []string) (held, error),
) *cobra.Command {
	return a.running(use, short, func(ctx context.Context, args []string, p program) error {
		return a.under(ctx, func(ctx context.Context, c *protocol.Client) (held, error) { return acquire(ctx, c, args) },
			func(c *protocol.Client, h held, s signals) error { return a.runHeld(ctx, c, h, p, s, a.stdin) })
	})
}

// running returns a command that runs another one, as do says.
func (a *app) running(
	use, short string, do func(ctx context.Context, args []string, p program) error,
) *cobra.Command {
	cmd := &cobra.Command{Use: use + withCommand, Short: short, RunE: func(cmd *cobra.Command, args []string) error {
		dash := cmd.ArgsLenAtDash()
		p, err := a.lookUp(args[dash:])
		if err != nil {
			return err
		}
		return do(cmd.Context(), args[:dash], p)
	}}
	a.addRunFlags(cmd)
	return cmd
}

// printEach prints what a sequence yields, until that ends.
func printEach[T any](all iter.Seq2[T, error], print func(T) error) error {
	for one, err := range all {
		if err == nil {
			err = print(one)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// list prints a row for each thing that a sequence yields, or what it is in JSON, as show says.
func list[T any](a *app, t table, all iter.Seq2[T, error], show func(T) (line any, row []string)) error {
	err := printEach(all, func(one T) error {
		line, row := show(one)
		if a.json {
			return a.printJSON(line)
		}
		t = append(t, row)
		return nil
	})
	if err != nil || a.json {
		return err
	}
	return t.write(a.stdout)
}

const withCommand = " [flags] -- COMMAND [ARGUMENT…]"

// verbs returns a command that has others, and does nothing by itself.
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

// complete gives a command and those below their long help, which is in a file, and lets them take
// the arguments that their Use names.
func complete(cmd *cobra.Command, name string) {
	if _, err := fs.Stat(helpFiles, "help/"+name+".txt"); err == nil {
		cmd.Long = help(name)
	}
	switch {
	case strings.HasSuffix(cmd.Use, withCommand):
		cmd.Long += "\n\n" + help("running")
	case cmd.Long != "" && cmd.Flags().Lookup("raw") != nil:
		cmd.Long += "\n" + elementHelp
	}
	if !cmd.HasSubCommands() || strings.Contains(cmd.Use, " ") {
		cmd.Args = checkArgs
	}
	for _, sub := range cmd.Commands() {
		complete(sub, strings.TrimPrefix(name+"-"+sub.Name(), "zkr-"))
	}
}

// checkArgs checks arguments by the Use of their command, such as "once PATH KEY". A PATH has to be
// one, N is a number of at least 1, and none but DATA is empty.
func checkArgs(cmd *cobra.Command, args []string) error {
	use, runs := strings.CutSuffix(cmd.Use, withCommand)
	if dash := cmd.ArgsLenAtDash(); runs {
		if dash < 0 || dash == len(args) {
			return usagef("%s: needs a command to run: %s", cmd.CommandPath(), cmd.UseLine())
		}
		args = args[:dash]
	}

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
			if err := protocol.ValidatePath(arg); err != nil {
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

// either returns one of two verbs: the one that does not wait, if that is asked for.
func either[T any](a *app, try bool, yes, no T) T {
	if try || a.noWait {
		return yes
	}
	return no
}

// number reads a number, or returns 0 if text is none.
func number(text string) int {
	n, _ := strconv.Atoi(text)
	return n
}
