package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/protocol"
)

// A held is what a command runs under.
type held struct {
	path  string
	node  string
	token int64
	env   []string // more of the command's environment

	done    <-chan struct{}             // closed at a loss
	err     func() error                // why it is no longer held
	revoked <-chan struct{}             // closed when it is asked back, or nil
	release func(context.Context) error // gives it back
	leaving string                      // what release waits for, if not for the servers
}

// A program is a command that was looked up.
type program struct {
	path string
	args []string
}

// lookUp finds the program of a command line, as a shell does.
func lookUp(argv []string) (program, error) {
	if err := canRun(); err != nil {
		return program{}, err
	}
	path, err := exec.LookPath(argv[0])
	switch {
	case err == nil:
	case os.IsPermission(err) || exists(argv[0]):
		return program{}, &exitError{exitCannotRun, fmt.Errorf("cannot run %s: %w", argv[0], err)}
	default:
		return program{}, &exitError{exitNotFound, fmt.Errorf("cannot find the command %s: %w", argv[0], err)}
	}
	return program{path, argv}, nil
}

// exists reports whether a program is named by its path, and there is something.
func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil && strings.ContainsRune(name, filepath.Separator)
}

// holdHelp says what all commands do that run another one.
const holdHelp = `

The command gets the signals that zkr gets, and ZKR_PATH, ZKR_TOKEN and ZKR_NODE in its environment.
ZKR_TOKEN is a fencing token: a store that refuses a smaller one than it has seen is safe from late
writes. The exit status is the command's, or one of those that "zkr help" lists.

When the session can no longer be trusted, the command and all its descendants get SIGTERM, and after
--grace SIGKILL. That is before the servers can give to others what it holds. What the command leaves
behind in the background is ended in the same way before anything is given back.`

// addGraceFlag adds the flag of all commands that run another one.
func (a *app) addGraceFlag(cmd *cobra.Command) {
	cmd.Flags().DurationVar(&a.grace, "grace", 0,
		"time between SIGTERM and SIGKILL when the command has to end (default a twelfth of the session timeout)")
}

// graceOf returns the grace for a session timeout. As SIGTERM comes so long before trust runs out,
// a longer grace ends the command because of shorter faults.
func (a *app) graceOf(timeout time.Duration) (time.Duration, error) {
	switch {
	case a.grace < 0:
		return 0, usagef("--grace %v: must not be negative", a.grace)
	case a.grace > timeout/6:
		return 0, usagef("--grace %v: is more than a sixth of the session timeout, which is %v: give --timeout %v or more, if the servers grant that",
			a.grace, timeout, 6*a.grace)
	case a.grace > 0:
		return a.grace, nil
	}
	return timeout / 12, nil
}

// owner describes this process to others: the data of the nodes that it creates.
func owner(argv []string) []byte {
	host, _ := os.Hostname()
	return protocol.Process{Host: host, PID: os.Getpid(), Program: shorten("zkr: "+strings.Join(argv, " "), 200)}.Data()
}

func shorten(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}

// An acquirer waits for what the command is to run under.
type acquirer func(ctx context.Context, c *protocol.Client) (held, error)

// hold connects, acquires something, runs the program while that is held, and gives it back.
func (a *app) hold(ctx context.Context, argv []string, acquire acquirer) error {
	p, err := lookUp(argv)
	if err != nil {
		return err
	}

	signals := listen()
	defer signals.stop()

	// A signal ends the wait.
	waiting, end := signals.ending(ctx)
	client, h, err := a.acquire(waiting, acquire)
	if interrupted := end(); interrupted != nil {
		err = interrupted
	}
	if client != nil {
		defer client.Close() // gives back what is still held
	}
	if err != nil {
		return err
	}

	// Whatever has become of the program, what is still held is given back.
	err = a.runHeld(ctx, client, h, p, signals, a.stdin)
	return a.giveBack(ctx, h, signals, err)
}

func (a *app) acquire(ctx context.Context, acquire acquirer) (*protocol.Client, held, error) {
	client, err := a.connectToRun(ctx)
	if err != nil {
		return client, held{}, err
	}
	ctx, cancel := a.bound(ctx)
	defer cancel()
	h, err := acquire(ctx, client)
	return client, h, waited(ctx, err)
}

// connectToRun is connect for a command that runs another one. The client is there if it failed
// because of --grace, too.
func (a *app) connectToRun(ctx context.Context) (*protocol.Client, error) {
	client, err := a.connect(ctx, a.watchConnection())
	if err != nil {
		return nil, err
	}

	session, err := client.Session(ctx)
	if err != nil {
		return client, err
	}
	_, err = a.graceOf(session.Timeout())
	return client, err
}

// watchConnection says on stderr when what is held is in danger.
func (a *app) watchConnection() protocol.ConnectOption {
	stop := func() {}
	return protocol.WithStateListener(func(s protocol.State) { // there is one call at a time
		stop()
		stop = func() {}
		if s == protocol.Suspended {
			stop = a.waiting(func() string { return "no server answers: what is held is lost if that lasts" })
		}
	})
}

// waited makes err, of a wait under ctx, say that --wait is why it has ended. The error of a context
// does.
func waited(ctx context.Context, err error) error {
	if err == nil || !errors.Is(context.Cause(ctx), errWaited) {
		return err
	}
	if !errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("%w: %w", errWaited, err)
	}
	return &exitError{exitTimedOut, err}
}

// giveBack gives back what was held, once the command has ended with err.
func (a *app) giveBack(ctx context.Context, h held, signals signals, err error) error {
	if h.release == nil || h.err() != nil {
		return err
	}
	leaving := cmp.Or(h.leaving, "waiting to give back "+h.path)
	defer a.waiting(func() string { return leaving })()

	ctx, end := signals.ending(ctx)
	released := h.release(ctx)
	if interrupted := end(); interrupted != nil {
		released = nil // the client does it in the background, or the servers do
		if err == nil {
			err = interrupted
		}
	}
	if released != nil {
		a.note("give back: %v", released)
	}
	return err
}

// A contender is one of those that a wait is for.
type contender struct {
	node  string
	data  []byte
	since time.Time
}

// holder says in a line for whom something is waited for: of the contenders, the first ones hold.
func holder(what string, contenders []contender, err error) string {
	if err != nil {
		return "waiting for " + what
	}
	if len(contenders) == 0 {
		return "waiting for " + what + ", which no contender holds"
	}
	first := contenders[0]
	line := fmt.Sprintf("waiting for %s, held by %s since %s", what, describe(first.node, first.data),
		first.since.Local().Format(time.DateTime))
	if ahead := len(contenders) - 1; ahead > 1 {
		line += fmt.Sprintf(" (%d wait)", ahead)
	}
	return line
}

// describe says who a contender is, from the data of its node.
func describe(node string, data []byte) string {
	if p, ok := protocol.ParseProcess(data); ok {
		return p.String()
	}
	return node
}

// environment returns that of a command which runs under h.
func environment(h held) []string {
	token := ""
	if h.token > 0 {
		token = strconv.FormatInt(h.token, 10)
	}
	return slices.Concat(os.Environ(), []string{"ZKR_PATH=" + h.path, "ZKR_TOKEN=" + token, "ZKR_NODE=" + h.node}, h.env)
}

// announce says for whom a wait is, once that is known to take longer than a moment.
func (a *app) announce(ctx context.Context, what string, list func(context.Context) ([]contender, error)) (stop func()) {
	return a.waiting(func() string {
		ctx, cancel := context.WithTimeout(ctx, quiet)
		defer cancel()
		contenders, err := list(ctx)
		return holder(what, contenders, err)
	})
}
