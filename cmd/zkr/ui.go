package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/ui"
	"github.com/zkrecipes/zkrecipes/protocol"
)

// showing has the flags of ui and exporter.
type showing struct {
	ui.Config
	listen     string
	access     ui.Access
	madeToken  bool
	allowBreak bool
}

func newUICommand(a *app) *cobra.Command {
	return a.pageCommand(&cobra.Command{Use: "ui [PATH]", Short: "Serve a page that shows all of it, live"}, "127.0.0.1:8281", false)
}

func newExporterCommand(a *app) *cobra.Command {
	return a.pageCommand(&cobra.Command{Use: "exporter [PATH]", Short: "Serve metrics of all of it, for Prometheus"}, "127.0.0.1:9281", true)
}

// pageCommand completes a command that serves over HTTP.
func (a *app) pageCommand(cmd *cobra.Command, listen string, exporter bool) *cobra.Command {
	sh := showing{Config: ui.Config{Path: "/", Exporter: exporter}}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			sh.Path = args[0]
		}

		sh.access.Token = cmp.Or(sh.access.Token, a.getenv("ZKR_UI_TOKEN"))
		if err := sh.check(); err != nil {
			return err
		}

		// A page that can act, or shows more than others may see, is not for all users of this
		// machine.
		if sh.access.Token == "" && (sh.allowBreak || a.hasCredentials()) {
			sh.access.Token, sh.madeToken = rand.Text(), true
		}

		return a.show(cmd.Context(), sh)
	}

	flags := cmd.Flags()
	flags.StringVar(&sh.listen, "listen", listen, "host and port to listen on; port 0 is a free one")
	flags.StringVar(&sh.access.Token, "token", "", "what a browser has to know (default $ZKR_UI_TOKEN, or nothing)")
	flags.StringArrayVar(&sh.access.Hosts, "host", nil, "name by which the page is reached, besides IP addresses and localhost")
	if !exporter {
		flags.BoolVar(&sh.allowBreak, "allow-break", false, "let the page break and revoke")
	}

	flags.DurationVar(&sh.Interval, "interval", 250*time.Millisecond, "time between two looks, at least")
	flags.DurationVar(&sh.Idle, "idle", 5*time.Second, "likewise while no browser looks, for the timeline; 0 is never")
	flags.IntVar(&sh.Rate, "rate", 1000, "how many requests a second looks may cost on average")
	flags.IntVar(&sh.Nodes, "nodes", 10_000, "how many nodes to list; what that leaves out keeps what was known of it, and is marked")
	flags.IntVar(&sh.Limit, "limit", 100, "how many contenders of each line, or elements of each queue, to read")
	return cmd
}

// check validates the flags. It does no I/O.
func (sh showing) check() error {
	if err := checkListen(sh.listen); err != nil {
		return err
	}

	switch {
	case sh.access.Token != "" && len(sh.access.Token) < ui.MinToken:
		return usagef("--token: must have at least %d characters, such as those of: openssl rand -hex 16", ui.MinToken)
	case sh.access.Token == "" && !ui.IsLocal(sh.listen):
		return usagef("--listen %s: other machines can reach it, so it needs a token: set ZKR_UI_TOKEN", sh.listen)
	case sh.Interval < 50*time.Millisecond:
		return usagef("--interval %v: must be at least 50ms", sh.Interval)
	case sh.Idle < 0 || sh.Idle > 0 && sh.Idle < sh.Interval:
		return usagef("--idle %v: must be 0, or at least --interval", sh.Idle)
	case sh.Rate < 1 || sh.Limit < 1 || sh.Nodes < 1:
		return usagef("--rate %d, --limit %d and --nodes %d: must be at least 1", sh.Rate, sh.Limit, sh.Nodes)
	}
	return nil
}

// show serves the page until a signal ends it.
func (a *app) show(ctx context.Context, sh showing) error {
	ctx, cancel := untilInterrupted(ctx)
	defer cancel()
	outlivePipes()

	listener, err := net.Listen("tcp", sh.listen)
	if err != nil {
		return err
	}
	defer listener.Close()

	// The client needs its listener before the hub exists.
	var hub atomic.Pointer[ui.Hub]
	client, err := a.connect(ctx, protocol.WithStateListener(func(s protocol.State) {
		if h := hub.Load(); h != nil {
			h.StateChanged(s)
		}
	}))
	if err != nil {
		return ended(ctx, err)
	}
	defer client.Close()

	sh.Client = client
	sh.Servers, _ = a.connectString() // can't fail: the client is connected
	if sh.allowBreak {
		sh.Break = func(ctx context.Context, d ui.Deed) error {
			err := breakFor(ctx, client, d)
			a.complain(fmt.Sprintf("%s of %s/%s, which %s had, by %s; error: %v; reason: %q", d.Verb, d.Path, d.Node, d.Who, d.By, err, d.Reason))
			return err
		}
	}

	h := ui.NewHub(sh.Config)
	hub.Store(h)

	// Deferred calls run in reverse order: cancel, then wait.
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() { h.Run(ctx) })

	// Browsers can use the name of this machine.
	if name, err := os.Hostname(); err == nil {
		sh.access.Hosts = append(sh.access.Hosts, name)
	}

	server := &http.Server{
		Handler:           h.Handler(sh.access),
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       time.Minute,
		BaseContext:       func(net.Listener) context.Context { return ctx },
	}

	defer context.AfterFunc(ctx, func() { server.Close() })() // the process ends

	url := "http://" + listener.Addr().String() + "/"
	if sh.Exporter {
		url += "metrics"
	}

	if sh.madeToken {
		url += "?token=" + sh.access.Token
	}

	if err := a.print(url, map[string]string{"url": url}); err != nil {
		return err
	}

	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// breakFor does a deed for a browser, if the contender is still the same.
func breakFor(ctx context.Context, client *protocol.Client, d ui.Deed) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()

	p, c, err := find(ctx, client, d.Path, d.Node)
	switch {
	case err != nil:
		return err
	case c == nil || !c.Since.Equal(d.Since):
		return ui.ErrGone
	case d.Verb == "break":
		return breakContender(ctx, client, p, c, d.Reason)
	}
	return revokeContender(ctx, client, p, c, d.Reason)
}
