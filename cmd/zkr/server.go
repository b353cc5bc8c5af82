package main

import (
	"context"
	"log/slog"
	"net"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/ui"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

func newServerCommand(a *app) *cobra.Command {
	var listen, data string
	cmd := &cobra.Command{
		Use: "server", Short: "Run a ZooKeeper server for development",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkListen(listen); err != nil {
				return err
			}

			// An unset variable in a script must not lose the data.
			if data == "" && cmd.Flags().Changed("data") {
				return usagef("--data: needs a directory; leave it out if nothing is to be kept")
			}
			return a.serve(cmd.Context(), embedded.Config{Address: listen, Dir: data})
		},
	}

	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:2181", "host and port to listen on; port 0 is a free one")
	cmd.Flags().StringVar(&data, "data", "", "directory that keeps nodes and sessions across restarts (default: nothing is kept)")
	return cmd
}

// checkListen returns an error of usage unless address has a host and a port.
func checkListen(address string) error {
	_, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return usagef("--listen %s: must be a host and a port, such as 127.0.0.1:2181", address)
	}
	return nil
}

// serve runs a server until a signal ends it or its data can't be written.
func (a *app) serve(ctx context.Context, cfg embedded.Config) error {
	ctx, stop := untilInterrupted(ctx)
	defer stop()
	outlivePipes()

	if !a.quiet {
		cfg.Logger = slog.New(warnings{slog.NewTextHandler(a.log, nil)})
	}

	// Say that it reads, because a large directory takes a while.
	ready := func() {}
	if cfg.Dir != "" {
		if entries, err := os.ReadDir(cfg.Dir); err != nil || len(entries) == 0 {
			a.note("%s has no data yet: the server begins without any", cfg.Dir)
		}

		ready = a.waiting(func() string { return "reading " + cfg.Dir })
	}

	s, err := embedded.Start(cfg)
	ready()
	if err != nil {
		return err
	}

	// There is no TLS, and anybody can do anything without ACLs.
	if !ui.IsLocal(cfg.Address) {
		a.note("warning: other machines can reach %s, and whoever does may change everything that no ACL protects", s.ConnectString())
	}

	keeps := "its data is in " + cfg.Dir
	if cfg.Dir == "" {
		keeps = "it keeps nothing when it ends (see --data)"
	}

	a.note("a server for development on %s: one process, not a production ensemble; %s", s.ConnectString(), keeps)
	if err := a.print(s.ConnectString(), map[string]string{"servers": s.ConnectString()}); err != nil {
		s.Close() //nolint:errcheck // the first error counts
		return err
	}

	select {
	case <-ctx.Done():
	case <-s.Done():
	}

	stop() // a second signal ends the process at once
	return s.Close()
}

// warnings is a handler of warnings only: errors are returned too, and other levels are for
// debugging.
type warnings struct{ slog.Handler }

func (warnings) Enabled(_ context.Context, level slog.Level) bool { return level == slog.LevelWarn }
