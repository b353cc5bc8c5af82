package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/spf13/pflag"

	"github.com/zkrecipes/zkrecipes/protocol"
)

const (
	// connectLimit is how long a server is waited for without --wait.
	connectLimit = 15 * time.Second

	// quiet is how long a wait may last before zkr says what it waits for.
	quiet = time.Second
)

// An app is one run of zkr: its streams, and the flags that all commands have.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	getenv         func(string) string

	servers string
	timeout time.Duration
	auth    []string
	acl     string
	tls     tlsFiles
	json    bool
	quiet   bool
	wait    time.Duration
	grace   time.Duration // of the commands that run another one

	began    bool // the command line was understood
	printing sync.Mutex
}

// addFlags adds the flags that all commands have.
func (a *app) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&a.servers, "servers", "", `connect string: "zk1:2181,zk2:2181/chroot" (default $ZKR_SERVERS)`)
	flags.DurationVar(&a.timeout, "timeout", 10*time.Second, "session timeout to ask for")
	flags.StringArrayVar(&a.auth, "auth", nil, `credential: "digest:user:password", or "@file" with one a line (default $ZKR_AUTH)`)
	flags.StringVar(&a.acl, "acl", "", `ACL of new nodes: "open", "creator", "read", or a list of scheme:id:permissions (default creator with --auth, otherwise open)`)
	flags.BoolVar(&a.tls.on, "tls", false, "connect with TLS")
	flags.StringVar(&a.tls.ca, "tls-ca", "", "certificates to trust, instead of the system's (PEM)")
	flags.StringVar(&a.tls.cert, "tls-cert", "", "certificate of the client (PEM)")
	flags.StringVar(&a.tls.key, "tls-key", "", "key of that certificate (PEM)")
	flags.BoolVar(&a.json, "json", false, "print JSON")
	flags.BoolVarP(&a.quiet, "quiet", "q", false, "print no notes, only errors")
	flags.DurationVar(&a.wait, "wait", 0, "how long to wait for what is asked for, and for a server (default: 15s for a server, and for the rest without limit)")
}

// check checks the flags that all commands have, without I/O.
func (a *app) check() error {
	switch {
	case a.wait < 0:
		return usagef("--wait %v: must not be negative", a.wait)
	case a.timeout < time.Millisecond:
		return usagef("--timeout %v: must be at least 1ms", a.timeout)
	}
	_, err := parseACL(a.acl)
	return err
}

// bound returns ctx, bounded by --wait. Waits for what is asked for belong under it, and what is
// done with that does not.
func (a *app) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	if a.wait == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, a.wait, errWaited)
}

// connect opens a session. It blocks for --wait at most, or for connectLimit without that. It says
// on stderr what it waits for. The caller closes the client.
func (a *app) connect(ctx context.Context, more ...protocol.ConnectOption) (*protocol.Client, error) {
	servers, err := a.connectString()
	if err != nil {
		return nil, err
	}
	options, err := a.connectOptions()
	if err != nil {
		return nil, err
	}

	limit := connectLimit
	if a.wait > 0 {
		limit = a.wait
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	defer a.waiting(func() string { return "waiting for a server of " + servers })()

	client, err := protocol.Connect(ctx, servers, append(options, more...)...)
	switch {
	case err == nil:
		return client, nil
	case errors.Is(err, context.DeadlineExceeded):
		return nil, &exitError{exitUnreachable, fmt.Errorf("no server of %s answered within %v: %w", servers, limit, err)}
	case errors.Is(err, context.Canceled), errors.Is(err, zk.ErrAuthFailed):
		return nil, err
	}
	return nil, usage(err) // a bad connect string: Connect retries everything else
}

// connectString returns what --servers or the environment says.
func (a *app) connectString() (string, error) {
	if a.servers != "" {
		return a.servers, nil
	}
	if servers := a.getenv("ZKR_SERVERS"); servers != "" {
		return servers, nil
	}
	return "", usagef("no servers: give --servers zk1:2181,zk2:2181, or set ZKR_SERVERS")
}

func (a *app) connectOptions() ([]protocol.ConnectOption, error) {
	options := []protocol.ConnectOption{protocol.WithSessionTimeout(a.timeout)}

	credentials, err := a.credentials()
	if err != nil {
		return nil, err
	}
	for _, c := range credentials {
		options = append(options, protocol.WithAuth(c.scheme, []byte(c.id)))
	}

	acl, err := parseACL(a.acl)
	if err != nil {
		return nil, err
	}
	if acl != nil {
		options = append(options, protocol.WithACL(acl))
	}

	dial, err := a.tls.dialer()
	if err != nil {
		return nil, err
	}
	if dial != nil {
		options = append(options, protocol.WithDialer(dial))
	}
	return options, nil
}

// waiting says on stderr what is waited for, unless stop is called within a second. It calls what
// once it has to, so what may do I/O.
func (a *app) waiting(what func() string) (stop func()) {
	if a.quiet {
		return func() {}
	}
	timer := time.AfterFunc(quiet, func() { a.note("%s", what()) })
	return func() { timer.Stop() }
}

// note prints a line on stderr, unless --quiet is given.
func (a *app) note(format string, args ...any) {
	if !a.quiet {
		a.complain(fmt.Sprintf(format, args...))
	}
}

// complain prints a line on stderr.
func (a *app) complain(line string) {
	a.printing.Lock()
	defer a.printing.Unlock()

	fmt.Fprintln(a.stderr, "zkr: "+harmless(strings.ReplaceAll(line, "\n", "; ")))
}

// printJSON prints v on stdout, in one line.
func (a *app) printJSON(v any) error {
	line, err := encodeJSON(v)
	if err != nil {
		return err
	}
	_, err = a.stdout.Write(line)
	return err
}

// A credential is what --auth gives.
type credential struct{ scheme, id string }

// credentials returns those of --auth, or of ZKR_AUTH if there is none.
func (a *app) credentials() ([]credential, error) {
	given := a.auth
	if env := a.getenv("ZKR_AUTH"); len(given) == 0 && env != "" {
		given = []string{env}
	}

	var lines []string
	for _, g := range given {
		if file, ok := strings.CutPrefix(g, "@"); ok {
			content, err := os.ReadFile(file)
			if err != nil {
				return nil, usagef("--auth: %w", err)
			}
			lines = append(lines, strings.Split(strings.TrimSpace(string(content)), "\n")...)
			continue
		}
		lines = append(lines, g)
	}

	var all []credential
	for _, line := range lines {
		scheme, id, ok := strings.Cut(strings.TrimSpace(line), ":")
		if !ok || scheme == "" || id == "" {
			return nil, usagef("--auth: must be a scheme and a credential, such as digest:user:password") // without the secret
		}
		all = append(all, credential{scheme, id})
	}
	return all, nil
}
