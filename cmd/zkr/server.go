package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

func newServerCommand(a *app) *cobra.Command {
	var listen, data string
	cmd := &cobra.Command{
		Use:   "server",
		Short: "Run a ZooKeeper server for development",
		Long: `Server runs a ZooKeeper server for development, for clients in any language. It is one process:
not an ensemble, and not for production.

It prints the address that clients connect to when it is ready, and runs until SIGINT or SIGTERM.
Then it exits with status 0. Clients are not told: their sessions go on if the server does in time.

Without --data, all is gone when the server ends. Clients of a server that has ended learn from the
next one that their session has expired, and go on in a new one.

With --data, nodes and sessions are kept in a directory, which is created if it does not exist.
Whatever the server has acknowledged is on the disk: kill -9 loses none of it. The server ends with
status 70 if the directory cannot be written, is damaged, or is in use by another server.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkListen(listen); err != nil {
				return err
			}
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

// checkListen returns an error of usage unless address is a host and a port.
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

// serve runs a server until a signal ends it, or it cannot write its data.
func (a *app) serve(ctx context.Context, cfg embedded.Config) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()

	if !a.quiet {
		cfg.Logger = slog.New(warnings{slog.NewTextHandler(a.stderr, nil)})
	}
	s, err := embedded.Start(cfg)
	if err != nil {
		return err
	}

	a.note("a server for development on %s: one process, not a production ensemble; %s", s.ConnectString(), keeps(cfg.Dir))
	if err := a.announceServer(s.ConnectString()); err != nil {
		s.Close() //nolint:errcheck // there is an error already
		return err
	}

	select {
	case <-ctx.Done():
	case <-s.Done():
	}
	stop() // a second signal ends the process at once
	return s.Close()
}

// keeps says what a server keeps.
func keeps(dir string) string {
	if dir == "" {
		return "it keeps nothing when it ends (see --data)"
	}
	return "its data is in " + dir
}

// announceServer prints the address of a server that is ready.
func (a *app) announceServer(address string) error {
	if a.json {
		return a.printJSON(struct {
			Servers string `json:"servers"`
		}{address})
	}
	_, err := fmt.Fprintln(a.stdout, address)
	return err
}

// warnings is a handler of warnings alone: errors are returned too, and the rest is for debugging.
type warnings struct{ slog.Handler }

func (warnings) Enabled(_ context.Context, level slog.Level) bool { return level == slog.LevelWarn }
