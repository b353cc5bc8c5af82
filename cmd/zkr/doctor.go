package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/doctor"
	"github.com/zkrecipes/zkrecipes/protocol"
)

func newDoctorCommand(a *app) *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Examine the ensemble: is it fit, and what does a lock cost here",
		Long: `doctor examines the ensemble that --servers names. Each check says what it looked at, what it found, and
what to do. It fails with status 70 if a finding is marked "fail", and not for warnings.

It opens some sessions, and writes below a node of its own, which it removes in the end: a megabyte once,
and some hundred times little. On an ensemble that works it takes a few seconds.

With --json each finding is one line, an object with "check", "status" ("ok", "warn", "fail" or "unknown"),
"looked", "found" and, unless there is nothing to do, "do".`,
		Args: operands(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := protocol.ValidatePath(path); err != nil {
				return usagef("doctor: --path: %w", err)
			}
			servers, err := a.connectString()
			if err != nil {
				return err
			}
			options, err := a.connectOptions()
			if err != nil {
				return err
			}
			dial, err := a.tls.dialer()
			if err != nil {
				return err
			}
			cfg := doctor.Config{
				Servers: servers, Options: options, Dial: dial, Timeout: a.timeout, Limit: connectLimit, Path: path,
			}
			if a.wait > 0 {
				cfg.Limit = a.wait
			}

			ctx, cancel := untilInterrupted(cmd.Context())
			defer cancel()
			failed := 0
			err = doctor.Run(ctx, cfg, func(f doctor.Finding) {
				if f.Status == doctor.Fail {
					failed++
				}
				a.printFinding(f)
			})
			if err == nil && failed > 0 {
				err = fmt.Errorf("%d checks have failed", failed)
			}
			return err
		},
	}

	cmd.Flags().StringVar(&path, "path", "/", "below which to create the node to write to")
	return cmd
}

func (a *app) printFinding(f doctor.Finding) {
	if a.json {
		a.printJSON(f) //nolint:errcheck // the exit status says what was found
		return
	}

	fmt.Fprintf(a.stdout, "%-9s%s: %s\n", "["+f.Status+"]", f.Check, harmless(f.Found))
	fmt.Fprintf(a.stdout, "         looked at: %s\n", harmless(f.Looked))
	if f.Do != "" {
		fmt.Fprintf(a.stdout, "         to do: %s\n", harmless(f.Do))
	}
}
