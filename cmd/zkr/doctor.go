package main

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/doctor"
	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/survey"
	"github.com/zkrecipes/zkrecipes/protocol"
)

func newDoctorCommand(a *app) *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use: "doctor", Short: "Examine the ensemble: is it fit, and what does a lock cost here",
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := a.examination()
			if err != nil {
				return err
			}
			cfg.Path = path

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

// examination returns the configuration of an examination of the servers.
func (a *app) examination() (doctor.Config, error) {
	servers, err := a.connectString()
	if err != nil {
		return doctor.Config{}, err
	}

	options, err := a.connectOptions()
	if err != nil {
		return doctor.Config{}, err
	}

	_, dial, err := a.tlsFiles()
	return doctor.Config{
		Servers: servers, Options: options, Dial: dial, Timeout: a.timeout, Limit: cmp.Or(a.wait, connectLimit),
	}, err
}

func (a *app) printFinding(f doctor.Finding) {
	if a.json {
		a.printJSON(f) //nolint:errcheck // the exit status says what was found
		return
	}

	fmt.Fprintf(a.stdout, "%-10s%s: %s\n", "["+f.Status+"]", f.Check, harmless(f.Found))
	fmt.Fprintf(a.stdout, "          looked at: %s\n", harmless(f.Looked))
	if f.Do != "" {
		fmt.Fprintf(a.stdout, "          to do: %s\n", harmless(f.Do))
	}
}

// memberLimit is the longest wait for one server without --wait. The other servers can answer
// instead.
const memberLimit = 3 * time.Second

// findClients asks the servers which contenders are connected.
func (a *app) findClients(ctx context.Context, c *protocol.Client, places ...*survey.Place) error {
	cfg, err := a.examination()
	if cfg.Limit = cmp.Or(a.wait, memberLimit); err == nil {
		doctor.FindClients(ctx, c, cfg, places)
	}
	return err
}
