package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/value"
)

func newValueCommand(a *app) *cobra.Command {
	var raw bool
	get := a.valueVerb("get PATH", "Print a value", func(ctx context.Context, v *value.Value, _ []string) error {
		return show(ctx, v.Get, func(state value.State) error { return a.printState(state, raw) })
	})
	addRaw(get, &raw)
	update := a.valueVerb("update PATH"+withCommand, "Replace a value by what a command makes of it", a.updateValue)
	update.Flags().BoolVar(&a.passAuth, "pass-auth", false, "let the command inherit $ZKR_AUTH")
	watch := a.valueVerb("watch PATH", "Print a value, and each change", a.watchValue)
	watch.PreRun = func(*cobra.Command, []string) { a.watch = true }

	return verbs("value", "Get, set, update, watch and delete a value", get, update, watch,
		a.valueVerb("set PATH [DATA]", "Set a value, from an argument or standard input", a.setValue),
		a.valueVerb("delete PATH", "Delete a value", func(ctx context.Context, v *value.Value, _ []string) error { return v.Delete(ctx) }))
}

// valueVerb returns a command that does one thing to the value at PATH.
func (a *app) valueVerb(use, short string, do func(ctx context.Context, v *value.Value, args []string) error) *cobra.Command {
	return a.verb(use, short, func(ctx context.Context, c *protocol.Client, args []string) error {
		return do(ctx, value.New(c, args[0]), args)
	})
}

func (a *app) watchValue(ctx context.Context, v *value.Value, _ []string) error {
	return printEach(v.Watch(ctx), func(state value.State) error {
		if a.json {
			return a.printState(state, false)
		}

		// An unset value is an empty line.
		text := ""
		if !state.Unset() {
			text = printable(string(state.Data))
		}

		_, err := fmt.Fprintln(a.stdout, text)
		return err
	})
}

func (a *app) setValue(ctx context.Context, v *value.Value, args []string) (err error) {
	var data []byte
	if len(args) == 2 {
		data = []byte(args[1])
	} else if data, err = a.readInput(); err != nil {
		return err
	}
	_, err = v.Set(ctx, data)
	return err
}

// updateValue lets a command compute the new value, and repeats that if another client is faster.
func (a *app) updateValue(ctx context.Context, v *value.Value, args []string) error {
	_, err := v.Update(ctx, func(old value.State) ([]byte, error) {
		var data bytes.Buffer

		// The command can run again, so it gets the old value each time.
		cmd := exec.CommandContext(ctx, args[1], args[2:]...)
		cmd.Env = a.environment(held{path: args[0], token: old.Token})
		cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(old.Data), &data, a.stderr
		cmd.WaitDelay = time.Second // a process that the command has left can keep its output open
		err := cmd.Run()
		failed := (*exec.ExitError)(nil)
		switch {
		case ctx.Err() != nil:
		case errors.Is(err, exec.ErrWaitDelay):
			err = nil // the command itself has succeeded
		case errors.As(err, &failed):
			err = &exitError{status: failed.ExitCode()}
			if status := failed.Sys().(syscall.WaitStatus); status.Signaled() {
				err = &exitError{status: exitSignal + int(status.Signal())}
			}
		case isAny(err, exec.ErrNotFound, os.ErrNotExist):
			err = &exitError{status: exitNotFound, err: err}
		case err != nil:
			err = &exitError{status: exitCannotRun, err: err}
		}

		return data.Bytes(), err
	})
	if exit := (*exitError)(nil); errors.As(err, &exit) && exit.err == nil {
		return exit // the command has printed its own error
	}
	return err
}

func (a *app) printState(s value.State, raw bool) error {
	if !a.json {
		return a.printElement(element{data: s.Data}, raw, "")
	}

	line := struct {
		Unset    bool       `json:"unset,omitempty"`
		Token    int64      `json:"token,omitempty"`
		Version  int32      `json:"version,omitempty"`
		Modified *time.Time `json:"modified,omitempty"`
		content
	}{Unset: s.Unset(), Token: s.Token, Version: s.Version}
	if !s.Unset() {
		line.Modified, line.content = &s.Modified, contentOf(s.Data)
	}
	return a.printJSON(line)
}
