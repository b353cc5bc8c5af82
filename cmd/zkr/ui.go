package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/survey"
	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/ui"
	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/protocol"
)

// showing is what the flags of ui say.
type showing struct {
	path       string
	listen     string
	access     ui.Access
	allowBreak bool
	interval   time.Duration
	idle       time.Duration
	rate       int
	contenders int
}

func newUICommand(a *app) *cobra.Command {
	var sh showing
	cmd := &cobra.Command{
		Use:   "ui [PATH]",
		Short: "Serve a page that shows all of it, live",
		Long: `ui serves a page that shows what stands at PATH and below it, by default the whole tree: lines with their
holders and waiters, queues, barriers and groups. The page follows what happens, and has a timeline of
hand-overs and losses of the last hour. ui prints the address of the page when it is ready, and runs until
SIGINT or SIGTERM.

The page only reads. With --allow-break it can also do what break and revoke do, after a question.

It listens on this machine alone, where every user can read it. To listen elsewhere, or to keep other users
out, give a token of at least 16 characters, best in ZKR_UI_TOKEN: the page asks for it once. There is no TLS:
the token and the page can be read on the way, so prefer a tunnel (ssh -L) or a proxy. --host is the name by
which a proxy is reached.

What the page costs the servers: each node is read once, and watched. After that a change costs one listing,
and one request for each contender that is new. While nothing changes, there is one request in two seconds
while a browser looks, and none otherwise. Queues with elements are the exception: while a browser looks, two of them
are read again at a time, about 70 requests each. --rate bounds all of this, --interval is the time
between two looks, and --idle the same while there is no browser.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return checkOperands(cmd, args, []string{"PATH"})
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			sh.path = "/"
			if len(args) > 0 {
				sh.path = args[0]
			}
			sh.access.Token = cmp.Or(sh.access.Token, a.getenv("ZKR_UI_TOKEN"))
			if err := sh.check(); err != nil {
				return err
			}
			return a.show(cmd.Context(), sh)
		},
	}

	flags := cmd.Flags()
	flags.StringVar(&sh.listen, "listen", "127.0.0.1:8281", "host and port to listen on; port 0 is a free one")
	flags.StringVar(&sh.access.Token, "token", "", "what a browser has to know (default $ZKR_UI_TOKEN, or nothing)")
	flags.StringArrayVar(&sh.access.Hosts, "host", nil, "name by which the page is reached, besides IP addresses and localhost")
	flags.BoolVar(&sh.allowBreak, "allow-break", false, "let the page break and revoke")
	flags.DurationVar(&sh.interval, "interval", 250*time.Millisecond, "time between two looks, at least")
	flags.DurationVar(&sh.idle, "idle", 5*time.Second, "likewise while no browser looks, for the timeline; 0 is never")
	flags.IntVar(&sh.rate, "rate", 1000, "how many requests a second looks may cost on average")
	flags.IntVar(&sh.contenders, "limit", 100, "how many contenders of each line, or elements of each queue, to read")
	return cmd
}

// check checks the flags, without I/O.
func (sh showing) check() error {
	if err := checkListen(sh.listen); err != nil {
		return err
	}
	switch {
	case sh.access.Token != "" && len(sh.access.Token) < ui.MinToken:
		return usagef("--token: must have at least %d characters, such as those of: openssl rand -hex 16", ui.MinToken)
	case sh.access.Token == "" && !ui.IsLocal(sh.listen):
		return usagef("--listen %s: other machines can reach it, so it needs a token: set ZKR_UI_TOKEN", sh.listen)
	case sh.interval < 50*time.Millisecond:
		return usagef("--interval %v: must be at least 50ms", sh.interval)
	case sh.idle < 0 || sh.idle > 0 && sh.idle < sh.interval:
		return usagef("--idle %v: must be 0, or at least --interval", sh.idle)
	case sh.rate < 1:
		return usagef("--rate %d: must be at least 1", sh.rate)
	case sh.contenders < 1:
		return usagef("--limit %d: must be at least 1", sh.contenders)
	}
	return nil
}

// show serves the page until a signal ends it.
func (a *app) show(ctx context.Context, sh showing) error {
	ctx, cancel := untilInterrupted(ctx)
	defer cancel()
	listener, err := net.Listen("tcp", sh.listen)
	if err != nil {
		return err
	}
	defer listener.Close()

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

	servers, err := a.connectString()
	if err != nil {
		return err
	}
	config := ui.Config{
		Client: client, Servers: servers, Path: sh.path,
		Interval: sh.interval, Idle: sh.idle, Rate: sh.rate, Limit: sh.contenders,
	}
	if sh.allowBreak {
		config.Break = func(ctx context.Context, d ui.Deed) error { return breakFor(ctx, client, d) }
	}
	h := ui.NewHub(config)
	hub.Store(h)

	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() { h.Run(ctx) })

	if name, err := os.Hostname(); err == nil {
		sh.access.Hosts = append(sh.access.Hosts, name)
	}
	server := &http.Server{
		Handler:           h.Handler(sh.access),
		ReadHeaderTimeout: 10 * time.Second,
		BaseContext:       func(net.Listener) context.Context { return ctx },
	}
	running.Go(func() {
		<-ctx.Done()
		server.Close() //nolint:errcheck // the process ends
	})
	if err := a.announcePage("http://" + listener.Addr().String() + "/"); err != nil {
		return err
	}
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// announcePage prints the address of a page that is ready.
func (a *app) announcePage(url string) error {
	if a.json {
		return a.printJSON(struct {
			URL string `json:"url"`
		}{url})
	}
	_, err := fmt.Fprintln(a.stdout, url)
	return err
}

// breakFor does what a browser has asked for, if the contender is still the one that it means.
func breakFor(ctx context.Context, client *protocol.Client, d ui.Deed) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	p, err := survey.Look(ctx, client, d.Path, survey.Limits{Contenders: 1 << 30})
	if err != nil {
		return err
	}

	c := p.Find(d.Node)
	switch {
	case c == nil || !c.Since.Equal(d.Since):
		return ui.ErrGone
	case d.Verb == "break":
		return breakContender(ctx, client, p, c)
	case p.Recipe != survey.Lock:
		return fmt.Errorf("%s is a %s: only a lock can be revoked; break takes it away", p.Path, p.Recipe)
	}
	return lock.New(client, p.Path).Revoke(ctx, c.Node)
}
