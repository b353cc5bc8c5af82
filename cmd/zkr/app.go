package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/spf13/pflag"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/survey"
	"github.com/zkrecipes/zkrecipes/protocol"
)

const (
	// connectLimit is the longest wait for a server without --wait.
	connectLimit = 15 * time.Second

	// noWaitLimit is the time for a request that can't be made without waiting, with --wait 0.
	noWaitLimit = 2 * time.Second

	// quiet is how long zkr waits before it says what for.
	quiet = time.Second
)

// An app is one run of zkr: its streams and the flags of all commands.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer // stderr is for questions and for the commands that zkr runs
	log            io.Writer // everything else for stderr; a write doesn't block
	getenv         func(string) string

	servers string
	timeout time.Duration
	auth    []string
	acl     string
	tlsOn   bool
	tls     protocol.TLSFiles // a file or a name turns TLS on, too
	json    bool
	quiet   bool
	wait    time.Duration
	noWait  bool // --wait 0
	busy    int  // replaces exitBusy
	watch   bool // run until the user ends zkr

	// Flags of commands that run a command.
	grace    time.Duration
	label    string
	passAuth bool
	owner    survey.Owner

	began       bool // the command line is valid
	implied     bool // new nodes are for the certificate, though --auth doesn't name it
	interrupted bool // SIGINT ended the command or the wait
}

// addFlags adds the flags of all commands.
func (a *app) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&a.servers, "servers", "", `connect string: "zk1:2181,zk2:2181/chroot" (default $ZKR_SERVERS)`)
	flags.DurationVar(&a.timeout, "timeout", 10*time.Second, "session timeout to ask for")
	flags.StringArrayVar(&a.auth, "auth", nil, `credential: "digest:user:password", or "@file" with one a line (default $ZKR_AUTH)`)
	flags.StringVar(&a.acl, "acl", "", `ACL of new nodes: "open", "creator", "read", or a list of scheme:id:permissions (default creator with --auth, otherwise open)`)
	flags.BoolVar(&a.tlsOn, "tls", false, "connect with TLS")
	flags.StringVar(&a.tls.CA, "tls-ca", "", "certificates to trust, instead of the system's (PEM; default $ZKR_TLS_CA)")
	flags.StringVar(&a.tls.Certificate, "tls-cert", "", "certificate of the client (PEM; default $ZKR_TLS_CERT); new nodes are for it alone, unless --acl is given")
	flags.StringVar(&a.tls.Key, "tls-key", "", "key of that certificate (PEM; default $ZKR_TLS_KEY)")
	flags.StringVar(&a.tls.ServerName, "tls-server-name", "", "what the servers' certificates are for, instead of their hosts (default $ZKR_TLS_SERVER_NAME)")
	flags.BoolVar(&a.json, "json", false, "print JSON")
	flags.BoolVarP(&a.quiet, "quiet", "q", false, "print no notes, only errors")
	flags.DurationVar(&a.wait, "wait", 0, "how long to wait for what is asked for, and for a server ; 0 is not at all (default: 15s for a server, and for the rest without limit)")
	flags.IntVar(&a.busy, "busy-status", exitBusy, "exit status for what is held, taken, full or empty")
}

// check validates the flags of all commands. It does no I/O.
func (a *app) check() error {
	switch {
	case a.busy < 1 || a.busy > 255:
		return usagef("--busy-status %d: must be from 1 to 255", a.busy)
	case a.wait < 0:
		return usagef("--wait %v: must not be negative", a.wait)
	case a.timeout < time.Millisecond:
		return usagef("--timeout %v: must be at least 1ms", a.timeout)
	case len(a.label) > 64:
		return usagef("--label: has %d bytes, and at most 64 are shown", len(a.label))
	}

	_, err := parseACL(a.acl)
	return err
}

// bound returns ctx with the limit of --wait. It is for waits only: work with the result must not
// end with --wait.
func (a *app) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	switch {
	case a.noWait:
		return context.WithTimeoutCause(ctx, noWaitLimit, errBusy)
	case a.wait == 0:
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, a.wait, errWaited)
}

// connect opens a session. It blocks for at most --wait (connectLimit without --wait) and notes on
// stderr that it waits. The caller closes the client.
func (a *app) connect(ctx context.Context, more ...protocol.ConnectOption) (*protocol.Client, error) {
	servers, err := a.connectString()
	if err != nil {
		return nil, err
	}

	options, err := a.connectOptions()
	if err != nil {
		return nil, err
	}

	if a.owner != (survey.Owner{}) {
		options = append(options, protocol.WithOwnerData(a.owner.Data()))
	}

	limit := connectLimit
	if a.wait > 0 {
		limit = a.wait
	}

	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	defer a.waiting(func() string { return "waiting for a server of " + servers })()

	// Connect retries a bad certificate for ever. Ask for the certificate if connecting takes long,
	// and give up if it's bad.
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	defer time.AfterFunc(quiet, func() {
		if err := a.badCertificate(servers); err != nil {
			giveUp(&exitError{status: exitCertificate, err: err})
		}
	}).Stop()

	client, err := protocol.Connect(ctx, servers, append(options, more...)...)
	switch exit := (&exitError{}); {
	case err == nil:
		return client, nil
	case errors.As(context.Cause(ctx), &exit):
		return nil, exit
	case a.implied && errors.Is(err, zk.ErrAuthFailed) && !strings.Contains(err.Error(), "do not say which identity"):
		// Go on with open nodes. Servers that demand no certificate take no identity from it.
		a.complain("warning: the servers take no identity from the certificate, so new nodes are open to everybody: see --acl and --auth")
		a.acl, a.implied = "open", false
		return a.connect(ctx, more...)
	case errors.Is(err, context.DeadlineExceeded):
		return nil, &exitError{status: exitUnreachable, err: fmt.Errorf("no server of %s answered within %v: %w", servers, limit, err)}
	case errors.Is(err, context.Canceled), errors.Is(err, zk.ErrAuthFailed):
		return nil, err
	}
	return nil, usage(err) // a bad connect string, because Connect retries all other errors
}

// connectString returns the servers from --servers or from the environment.
func (a *app) connectString() (string, error) {
	if servers := cmp.Or(a.servers, a.getenv("ZKR_SERVERS")); servers != "" {
		return servers, nil
	}
	return "", usagef("no servers: give --servers zk1:2181,zk2:2181, or set ZKR_SERVERS")
}

func (a *app) connectOptions() ([]protocol.ConnectOption, error) {
	// The log is discarded: users see the errors of commands and the notes of waits.
	options := []protocol.ConnectOption{
		protocol.WithSessionTimeout(a.timeout), protocol.WithLogger(slog.New(slog.DiscardHandler)),
	}

	credentials, err := a.credentials()
	if err != nil {
		return nil, err
	}

	for _, c := range credentials {
		options = append(options, protocol.WithAuth(c.scheme, []byte(c.id)))
	}

	acl, err := a.newACL(credentials)
	if err != nil {
		return nil, err
	}

	if acl != nil {
		options = append(options, protocol.WithACL(acl))
	}

	files, dial, err := a.tlsFiles()
	if dial != nil {
		options = append(options, protocol.WithTLSFiles(files))
	}

	// A certificate alone closes new nodes too.
	if files.Certificate != "" && len(credentials) == 0 && acl == nil {
		options = append(options, protocol.WithAuth("x509", nil)) // close new nodes for others
		a.implied = true
	}
	return options, err
}

// waiting notes on stderr what zkr waits for, unless stop is called within a second. It calls what
// only then, so what can do I/O.
func (a *app) waiting(what func() string) (stop func()) {
	if a.quiet {
		return func() {}
	}
	timer := time.AfterFunc(quiet, func() { a.note("%s", what()) })
	return func() { timer.Stop() }
}

// note prints a line on stderr unless --quiet is given.
func (a *app) note(format string, args ...any) {
	if !a.quiet {
		a.complain(fmt.Sprintf(format, args...))
	}
}

// complain prints a line on stderr without waiting for the reader.
func (a *app) complain(line string) {
	fmt.Fprintln(a.log, "zkr: "+harmless(strings.ReplaceAll(line, "\n", "; ")))
}

// print prints a line, or v with --json.
func (a *app) print(line string, v any) error {
	if a.json {
		return a.printJSON(v)
	}
	_, err := fmt.Fprintln(a.stdout, line)
	return err
}

// printJSON prints v on stdout as one line of JSON.
func (a *app) printJSON(v any) error {
	line, err := encodeJSON(v)
	if err != nil {
		return err
	}
	_, err = a.stdout.Write(line)
	return err
}

// A credential is a value of --auth.
type credential struct{ scheme, id string }

// hasCredentials reports whether the servers can permit this zkr more than they permit everybody.
func (a *app) hasCredentials() bool {
	return len(a.auth) > 0 || a.getenv("ZKR_AUTH") != "" || a.tls.Certificate != "" || a.getenv("ZKR_TLS_CERT") != ""
}

// credentials returns the credentials of --auth, or of ZKR_AUTH without that flag.
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

	// An x509 credential can be empty, because the identity is in the certificate.
	var all []credential
	for _, line := range lines {
		scheme, id, ok := strings.Cut(strings.TrimSpace(line), ":")
		if !ok || scheme == "" || id == "" && scheme != "x509" {
			return nil, usagef("--auth: must be a scheme and a credential, such as digest:user:password") // never print the secret
		}

		all = append(all, credential{scheme, id})
	}
	return all, nil
}
