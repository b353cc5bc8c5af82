package main

import (
	"cmp"
	"context"
	"sync"

	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/once"
)

func newOnceCommand(a *app) *cobra.Command {
	keep := 0
	cmd := &cobra.Command{
		Use:   "once PATH KEY [flags] -- COMMAND [ARGUMENT…]",
		Short: "Run a command once for a key, such as a day",
		Long: `Once runs the command unless one has succeeded for KEY at PATH, on any machine. While another one runs
for KEY, it waits. A command that fails, or is lost, leaves the key to the next one. If the key is done,
the status is 0.

  zkr once /jobs/report "$(date -u +%F)" -- ./report.sh

The command gets ZKR_KEY instead of ZKR_NODE.` + holdHelp,
		Args: operandsAndCommand("PATH", "KEY"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var options []once.Option
			if cmd.Flags().Changed("keep") {
				options = append(options, once.WithKeep(keep))
			}
			return a.once(cmd.Context(), args[0], args[1], args[2:], options)
		},
	}
	cmd.Flags().IntVar(&keep, "keep", 1000, "how many keys that are done are remembered")
	a.addGraceFlag(cmd)
	return cmd
}

func (a *app) once(ctx context.Context, path, key string, argv []string, options []once.Option) error {
	p, err := lookUp(argv)
	if err != nil {
		return err
	}
	signals := listen()
	defer signals.stop()

	waiting, end := signals.ending(ctx)
	end = sync.OnceValue(end)
	client, err := a.connectToRun(waiting)
	if client != nil {
		defer client.Close()
	}
	if err != nil {
		return cmp.Or(end(), err)
	}

	waiting, stop := a.bound(waiting)
	defer stop()
	quiet := a.waiting(func() string { return "waiting for the one that runs " + key + " of " + path })
	defer quiet()

	// The wait ends with waiting, and the run does not.
	done, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	unbind := context.AfterFunc(waiting, func() { cancel(context.Cause(waiting)) })
	ran, err := once.New(client, path, options...).Do(done, key, func(ctx context.Context, token int64) error {
		quiet()
		if !unbind() {
			return context.Cause(waiting)
		}
		if err := end(); err != nil {
			return err
		}
		h := held{
			path: path, token: token, env: []string{"ZKR_KEY=" + key},
			done: ctx.Done(),
			err: func() error {
				if ctx.Err() == nil {
					return nil
				}
				return context.Cause(ctx)
			},
		}
		return a.runHeld(ctx, client, h, p, signals, a.stdin)
	})
	switch interrupted := end(); {
	case interrupted != nil:
		return interrupted
	case err == nil && !ran:
		a.note("%s of %s is done already", key, path)
	case !ran:
		return waited(waiting, err)
	}
	return err
}
