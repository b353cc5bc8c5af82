package main

import (
	"context"
	"errors"
	"os"
	"os/exec"

	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/lock"
)

func newLockCommand(a *app) *cobra.Command {
	var try bool
	cmd := &cobra.Command{
		Use:   "lock PATH [flags] -- COMMAND [ARGUMENT…]",
		Short: "Run a command while holding a lock",
		Args:  operandsAndCommand("PATH"),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := a.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer client.Close()

			ctx, cancel := a.bound(cmd.Context())
			defer cancel()
			m := lock.New(client, args[0])
			acquire := m.Lock
			if try {
				acquire = m.TryLock
			}
			lease, err := acquire(ctx)
			if err != nil {
				return err
			}
			defer lease.Unlock(context.WithoutCancel(ctx)) //nolint:errcheck // the client is closed

			child := exec.CommandContext(cmd.Context(), args[1], args[2:]...)
			child.Stdin, child.Stdout, child.Stderr = os.Stdin, os.Stdout, os.Stderr
			err = child.Run()
			var ended *exec.ExitError
			if errors.As(err, &ended) {
				return &exitError{status: ended.ExitCode()}
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&try, "try", false, "do not wait: fail if the lock is held")
	return cmd
}
