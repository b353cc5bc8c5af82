package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/survey"
	"github.com/zkrecipes/zkrecipes/once"
	"github.com/zkrecipes/zkrecipes/protocol"
)

func newOnceCommand(a *app) *cobra.Command {
	keep := 0
	var cmd *cobra.Command
	cmd = a.running("once PATH KEY", "Run a command once for a key, such as a day",
		func(ctx context.Context, args []string, p program) error {
			var options []once.Option
			if cmd.Flags().Changed("keep") {
				options = append(options, once.WithKeep(keep))
			}
			return a.under(ctx, nothing, func(client *protocol.Client, _ held, signals signals) error {
				return a.runOnce(ctx, client, once.New(client, args[0], options...), args[0], args[1], p, signals)
			})
		})
	cmd.Flags().IntVar(&keep, "keep", 1000, "how many keys that are done are remembered")

	keys := a.verb("keys PATH", "Print the keys that are done, in order of their names", a.printKeys)
	done := a.verb("done PATH KEY", "Say whether a key is done, with status 75 if it is not",
		func(ctx context.Context, c *protocol.Client, args []string) error {
			done, err := once.New(c, args[0]).Done(ctx, args[1])
			if err == nil && !done {
				err = &exitError{status: exitBusy, err: fmt.Errorf("%s of %s is not done", args[1], args[0])}
			}
			return err
		})
	forget := a.verb("forget PATH KEY", "Make a key that is done run again",
		func(ctx context.Context, c *protocol.Client, args []string) error {
			return once.New(c, args[0]).Forget(ctx, args[1])
		})
	cmd.AddCommand(keys, done, forget)
	return cmd
}

// printKeys prints the done keys.
func (a *app) printKeys(ctx context.Context, c *protocol.Client, args []string) error {
	return list(a, nil, once.New(c, args[0]).Keys(ctx), func(key once.Key) (any, []string) {
		return struct {
				Key   string    `json:"key"`
				Done  time.Time `json:"done"`
				Host  string    `json:"host,omitempty"`
				PID   int       `json:"pid,omitempty"`
				Token int64     `json:"token,omitempty"`
			}{key.Name, key.Done.UTC(), key.Host, key.PID, key.Token},
			[]string{printable(key.Name), moment(key.Done), printable(survey.Owner{Host: key.Host, PID: key.PID}.String())}
	})
}

// runOnce runs a program for a key unless the key is done.
func (a *app) runOnce(
	ctx context.Context, client *protocol.Client, o *once.Once, path, key string, p program, signals signals,
) error {
	waiting, end := signals.ending(ctx)
	end = sync.OnceValue(end)
	waiting, stop := a.bound(waiting)
	defer stop()
	quiet := a.waiting(func() string { return "waiting for the one that runs " + key + " of " + path })
	defer quiet()

	// The wait ends with waiting, but a run must not. unbind separates them when the run begins.
	done, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	unbind := context.AfterFunc(waiting, func() { cancel(context.Cause(waiting)) })
	ran, err := o.Do(done, key, func(ctx context.Context, r *once.Run) error {
		quiet()

		// If the wait ended at this very moment, the program must not run.
		if !unbind() {
			return context.Cause(waiting)
		}

		if err := end(); err != nil {
			return err
		}

		h := held{
			path: path, token: r.Token(), node: r.Node(), env: []string{"ZKR_KEY=" + key},
			done: ctx.Done(), says: true,
			err: func() error { return context.Cause(ctx) },
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
