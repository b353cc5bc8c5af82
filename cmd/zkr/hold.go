package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/survey"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// A held is a lock, a permit or the like that zkr holds while a command runs.
type held struct {
	path  string
	node  string
	token int64
	env   []string // additions to the command's environment

	done    <-chan struct{}             // closed at a loss
	err     func() error                // why it was lost
	revoked <-chan struct{}             // closed by a revocation, or nil
	release func(context.Context) error // gives it back
	leaving string                      // the reason why release waits, if not for the servers
	says    bool                        // the node's data is a survey.Owner
}

// A grant is the value that a recipe returns for something acquired.
type grant interface {
	Node() string
	Token() int64
	Done() <-chan struct{}
	Err() error
}

// holding returns a held for a grant at a path. release gives it back.
func holding(path string, g grant, release func(context.Context) error) held {
	return held{path: path, node: g.Node(), token: g.Token(), done: g.Done(), err: g.Err, release: release}
}

// contended is holding for recipes with contention. If something is held already, the error says by
// whom.
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

// announceHold writes to the node since when it is held, for ps. It leaves the node alone if
// another client has written to it. Nothing depends on the write, so nothing waits for it.
func (a *app) announceHold(client *protocol.Client, h held, change func(*survey.Owner), version int32) {
	if !h.says {
		return
	}

	// Encode before the goroutine starts, so that two changes can't race.
	change(&a.owner)
	data := a.owner.Data()
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if s, err := recipe.SessionOf(ctx, client); err == nil {
			s.Set(ctx, h.path+"/"+h.node, data, version) //nolint:errcheck // see above
		}
	}()
}

func heldNow(o *survey.Owner) { o.HeldSince = time.Now().UTC() }

// heldBy returns text about the holder of a path and the number of waiters, if it finds out within
// a second.
func heldBy(ctx context.Context, c *protocol.Client, path string) string {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), quiet) // --wait may end meanwhile
	defer cancel()

	p, err := survey.Look(ctx, c, path, survey.Limits{Contenders: 100, Places: 1})
	if err != nil || p.Holders() == 0 { // the path can be hidden by an ACL, too
		return ", held by: unknown"
	}

	// Holders come first.
	holder := p.Contenders[0]
	text := fmt.Sprintf(", held by %s (%s)", cmp.Or(who(holder), holder.Node), times(holder))
	if waiters := p.Waiters(); waiters > 1 {
		text += fmt.Sprintf("; %d wait", waiters)
	}
	return text
}

// announce notes who holds a path if the wait takes longer than a moment.
func (a *app) announce(ctx context.Context, what string, c *protocol.Client, path string) (stop func()) {
	return a.waiting(func() string { return "waiting for " + what + " " + path + heldBy(ctx, c, path) })
}

// An acquirer acquires the lock (or the like) for a command.
type acquirer func(ctx context.Context, c *protocol.Client) (held, error)

// nothing is the acquirer of commands that acquire more than one thing later.
func nothing(context.Context, *protocol.Client) (held, error) { return held{}, nil }

// under connects, acquires something, calls do, and gives it back.
func (a *app) under(ctx context.Context, acquire acquirer, do func(*protocol.Client, held, signals) error) error {
	signals := listen()
	defer signals.stop()

	// A signal ends the wait.
	waiting, end := signals.ending(ctx)
	client, h, err := a.acquire(waiting, acquire)

	// A signal says more than the error that it caused.
	if interrupted := end(); interrupted != nil {
		err = interrupted
	}

	if client != nil {
		defer client.Close() // gives back everything that is still held
	}

	if err != nil {
		return err
	}

	// Give it back however the command ended.
	return a.giveBack(ctx, h, signals, do(client, h, signals))
}

// acquire connects and acquires something. It returns the client even if acquire fails.
func (a *app) acquire(ctx context.Context, acquire acquirer) (*protocol.Client, held, error) {
	client, err := a.connect(ctx, a.watchConnection())
	if err != nil {
		return nil, held{}, err
	}

	// Refuse a grace that is too long before the wait.
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

// watchConnection notes on stderr when the connection endangers the lock.
func (a *app) watchConnection() protocol.ConnectOption {
	stop := func() {}
	return protocol.WithStateListener(func(s protocol.State) { // calls don't overlap
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

// waited makes the error of a wait under ctx say that --wait ended it.
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

// giveBack gives back h after the command. err is the command's error.
func (a *app) giveBack(ctx context.Context, h held, signals signals, err error) error {
	if h.release == nil || h.err() != nil {
		return err
	}

	leaving := cmp.Or(h.leaving, "waiting to give back "+h.path)
	defer a.waiting(func() string { return leaving })()

	// A signal also ends the wait for the servers.
	ctx, end := signals.ending(ctx)
	released := h.release(ctx)
	if interrupted := end(); interrupted != nil {
		released = nil // the client goes on in the background, or the session ends
		if err == nil {
			err = interrupted
		}
	}

	if released != nil {
		a.note("give back: %v", released)
	}
	return err
}
