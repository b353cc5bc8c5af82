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

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/plain"
	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/survey"
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
	says    bool                        // its node has the data of a survey.Owner
}

// A grant is what a recipe gives.
type grant interface {
	Node() string
	Token() int64
	Done() <-chan struct{}
	Err() error
}

// holding returns what was granted at a path. Release gives it back.
func holding(path string, g grant, release func(context.Context) error) held {
	return held{path: path, node: g.Node(), token: g.Token(), done: g.Done(), err: g.Err, release: release}
}

// contended is holding for what others may hold, or returns err with those that do.
func contended(
	ctx context.Context, c *protocol.Client, path string, g grant, release func(context.Context) error, err error,
) (held, error) {
	switch {
	case err == nil:
		h := holding(path, g, release)
		h.says = true
		return h, nil
	case statusOf(err) == exitBusy:
		err = fmt.Errorf("%w%s", err, heldBy(ctx, c, path))
	}
	return held{}, err
}

// A program is a command that was looked up.
type program struct {
	path string
	args []string
}

// lookUp finds the program of a command line, as a shell does. The nodes that are created from now on
// say who runs it: of the command line, they have the name of the program alone.
func (a *app) lookUp(argv []string) (program, error) {
	if err := canRun(); err != nil {
		return program{}, &exitError{status: exitCannotRun, err: err}
	}
	path, err := exec.LookPath(argv[0])
	switch {
	case err == nil:
	case isAny(err, exec.ErrNotFound, os.ErrNotExist):
		return program{}, &exitError{status: exitNotFound, err: fmt.Errorf("cannot find the command %s: %w", argv[0], err)}
	default:
		return program{}, &exitError{status: exitCannotRun, err: fmt.Errorf("cannot run %s: %w", argv[0], err)}
	}
	a.own(filepath.Base(argv[0]))
	return program{path, argv}, nil
}

// own makes the nodes that are created from now on say who has them.
func (a *app) own(name string) {
	host, _ := os.Hostname()
	a.owner = survey.Owner{Host: host, PID: os.Getpid(), Program: plain.Cut(name, 32), Label: a.label}
}

// addRunFlags adds the flags of all commands that run another one.
func (a *app) addRunFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&a.label, "label", "", "what else ps shows of this process, at most 64 bytes; everybody may read it")
	cmd.Flags().BoolVar(&a.passAuth, "pass-auth", false, "let the command inherit $ZKR_AUTH")
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

// announceHold writes to the node of what is held since when that is, for ps to show. It only does so
// as long as nobody else has written to it. It is a help: nothing waits for it.
func (a *app) announceHold(client *protocol.Client, h held, change func(*survey.Owner), version int32) {
	if !h.says {
		return
	}
	change(&a.owner)
	data := a.owner.Data()
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if s, err := client.Session(ctx); err == nil {
			s.Set(ctx, h.path+"/"+h.node, data, version) //nolint:errcheck // see above
		}
	}()
}

// An acquirer waits for what the command is to run under.
type acquirer func(ctx context.Context, c *protocol.Client) (held, error)

// nothing is acquired by what acquires more than one thing, later.
func nothing(context.Context, *protocol.Client) (held, error) { return held{}, nil }

// under connects, acquires something, calls do while that is held, and gives it back.
func (a *app) under(ctx context.Context, acquire acquirer, do func(*protocol.Client, held, signals) error) error {
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
	a.announceHold(client, h, func(o *survey.Owner) { o.HeldSince = time.Now().UTC() }, 0)

	// Whatever has become of the program, what is still held is given back.
	return a.giveBack(ctx, h, signals, do(client, h, signals))
}

// acquire connects and acquires something. The client is there if only the latter failed.
func (a *app) acquire(ctx context.Context, acquire acquirer) (*protocol.Client, held, error) {
	client, err := a.connect(ctx, a.watchConnection())
	if err != nil {
		return nil, held{}, err
	}

	// A grace that is too long is refused before the wait.
	session, err := client.Session(ctx)
	if err == nil {
		_, err = a.graceOf(session.Timeout())
	}
	if err != nil {
		return client, held{}, err
	}

	ctx, cancel := a.bound(ctx)
	defer cancel()
	h, err := acquire(ctx, client)
	return client, h, waited(ctx, err)
}

// watchConnection says on stderr when what is held is in danger.
func (a *app) watchConnection() protocol.ConnectOption {
	stop := func() {}
	return protocol.WithStateListener(func(s protocol.State) { // there is one call at a time
		stop()
		stop = func() {}
		switch s {
		case protocol.Suspended:
			stop = a.waiting(func() string { return "no server answers: what is held is lost if that lasts" })
		case protocol.Lost:
			a.note("the session is lost: what was held is lost, and what waits goes to the end of the line")
		}
	})
}

// waited makes err, of a wait under ctx, say that --wait is why it has ended. The error of a context
// does.
func waited(ctx context.Context, err error) error {
	switch cause := context.Cause(ctx); {
	case err != nil && errors.Is(cause, errBusy):
		return fmt.Errorf("%w: %w", errBusy, err)
	case err == nil || !errors.Is(cause, errWaited):
		return err
	}
	if !errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("%w: %w", errWaited, err)
	}
	return &exitError{status: exitTimedOut, err: err}
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

// heldBy says who holds a path, and how many wait, as far as that is found out within a second.
func heldBy(ctx context.Context, c *protocol.Client, path string) string {
	ctx, cancel := context.WithTimeout(ctx, quiet)
	defer cancel()
	p, err := survey.Look(ctx, c, path, survey.Limits{Contenders: 100, Places: 1})
	if err != nil || p.Holders() == 0 { // it may be hidden, too
		return ", held by: unknown"
	}
	holder := p.Contenders[0]
	text := fmt.Sprintf(", held by %s (%s)", cmp.Or(who(holder), holder.Node), times(holder))
	if waiters := p.Waiters(); waiters > 1 {
		text += fmt.Sprintf("; %d wait", waiters)
	}
	return text
}

// environment returns that of a command which runs under h. It has no credential and nothing of a zkr
// around this one.
func (a *app) environment(h held) []string {
	inherited := slices.DeleteFunc(os.Environ(), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return slices.Contains([]string{"ZKR_KEY", "ZKR_ATTEMPT", "ZKR_UI_TOKEN"}, name) || name == "ZKR_AUTH" && !a.passAuth
	})
	token := ""
	if h.token > 0 {
		token = strconv.FormatInt(h.token, 10)
	}
	return slices.Concat(inherited, []string{"ZKR_PATH=" + h.path, "ZKR_TOKEN=" + token, "ZKR_NODE=" + h.node}, h.env)
}

// announce says for whom a wait is, once that is known to take longer than a moment.
func (a *app) announce(ctx context.Context, what string, c *protocol.Client, path string) (stop func()) {
	return a.waiting(func() string { return "waiting for " + what + " " + path + heldBy(ctx, c, path) })
}
