package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/rwlock"
)

func newLockCommand(a *app) *cobra.Command {
	l := locker{app: a}
	cmd := a.runner("lock PATH", "Run a command while holding a lock", l.acquire)
	l.addFlags(cmd.Flags())
	return cmd
}

func newHoldCommand(a *app) *cobra.Command {
	l := locker{app: a}
	cmd := &cobra.Command{
		Use: "hold PATH", Short: "Hold a lock until a signal, without a command",
		RunE: func(cmd *cobra.Command, args []string) error {
			a.own("zkr hold")
			return a.under(cmd.Context(), func(ctx context.Context, c *protocol.Client) (held, error) {
				return l.acquire(ctx, c, args)
			}, a.untilSignal)
		},
	}

	l.addFlags(cmd.Flags())
	cmd.Flags().StringVar(&a.label, "label", "", "what else ps shows of this process, at most 64 bytes; everybody may read it")
	return cmd
}

// untilSignal prints the holder's node and holds the lock until a signal, a revocation or a loss.
func (a *app) untilSignal(client *protocol.Client, h held, signals signals) error {
	a.announceHold(client, h, heldNow, 0)

	// A script can wait for this line.
	node := fmt.Sprintf("%s/%s %d", h.path, h.node, h.token)
	if err := a.print(node, map[string]string{"node": node}); err != nil {
		return err
	}

	for {
		select {
		case s := <-signals:
			if ends(s) {
				return nil
			}
		case <-h.revoked:
			a.note("%s is asked back, and given back", h.path)
			return nil
		case <-h.done:
			return &exitError{status: exitLost, err: fmt.Errorf("%s: %w", h.path, h.err())}
		}
	}
}

// A locker acquires a lock as its flags say.
type locker struct {
	app         *app
	try, shared bool
}

func (l *locker) addFlags(flags *pflag.FlagSet) {
	flags.BoolVar(&l.try, "try", false, "do not wait: fail if the lock is held")
	flags.BoolVar(&l.shared, "shared", false, "hold the lock together with others that share it")
}

func (l *locker) acquire(ctx context.Context, c *protocol.Client, args []string) (held, error) {
	path := args[0]
	defer l.app.announce(ctx, "the lock", c, path)()

	if l.shared {
		m := rwlock.New(c, path)
		lease, err := either(l.app, l.try, m.TryRLock, m.RLock)(ctx)
		return contended(ctx, c, path, lease, lease.Unlock, err)
	}

	m := lock.New(c, path)
	lease, err := either(l.app, l.try, m.TryLock, m.Lock)(ctx)
	h, err := contended(ctx, c, path, lease, lease.Unlock, err)
	if err == nil {
		h.revoked = lease.Revoked()
	}
	return h, err
}
