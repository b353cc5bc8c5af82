package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/rwlock"
)

func newLockCommand(a *app) *cobra.Command {
	var try, shared bool
	cmd := &cobra.Command{
		Use:   "lock PATH [flags] -- COMMAND [ARGUMENT…]",
		Short: "Run a command while holding a lock",
		Long: `Lock waits for the lock at PATH, runs the command while it is held, and gives it back.

The lock is that of package lock, of Apache Curator's InterProcessMutex and of zk.Lock. With
--shared, it is held together with others that share it.` + holdHelp,
		Args: operandsAndCommand("PATH"),
		RunE: func(cmd *cobra.Command, args []string) error {
			l := locker{app: a, path: args[0], argv: args[1:], try: try}
			acquire := l.lock
			if shared {
				acquire = l.share
			}
			return a.hold(cmd.Context(), l.argv, acquire)
		},
	}
	cmd.Flags().BoolVar(&try, "try", false, "do not wait: fail if the lock is held")
	cmd.Flags().BoolVar(&shared, "shared", false, "hold the lock together with others that share it")
	a.addGraceFlag(cmd)
	return cmd
}

// A locker acquires a lock.
type locker struct {
	app  *app
	path string
	argv []string
	try  bool
}

func (l locker) lock(ctx context.Context, c *protocol.Client) (held, error) {
	m := lock.New(c, l.path, lock.WithData(owner(l.argv)))
	defer l.announce(ctx, c)()

	acquire := m.Lock
	if l.try {
		acquire = m.TryLock
	}
	lease, err := acquire(ctx)
	if err != nil {
		return held{}, err
	}
	return held{
		path: l.path, node: lease.Node(), token: lease.Token(),
		done: lease.Done(), err: lease.Err, revoked: lease.Revoked(), release: lease.Unlock,
	}, nil
}

func (l locker) share(ctx context.Context, c *protocol.Client) (held, error) {
	m := rwlock.New(c, l.path, rwlock.WithData(owner(l.argv)))
	defer l.announce(ctx, c)()

	acquire := m.RLock
	if l.try {
		acquire = m.TryRLock
	}
	lease, err := acquire(ctx)
	if err != nil {
		return held{}, err
	}
	return held{
		path: l.path, node: lease.Node(), token: lease.Token(),
		done: lease.Done(), err: lease.Err, release: lease.Unlock,
	}, nil
}

// announce says for whom the lock is waited for.
func (l locker) announce(ctx context.Context, c *protocol.Client) (stop func()) {
	return l.app.announce(ctx, "the lock "+l.path, func(ctx context.Context) ([]contender, error) {
		return contendersOf(lock.New(c, l.path).Contenders(ctx))
	})
}

// contendersOf describes the contenders of a line.
func contendersOf(line []lock.Contender, err error) ([]contender, error) {
	all := make([]contender, 0, len(line))
	for _, c := range line {
		all = append(all, contender{c.Node, c.Data, c.Since})
	}
	return all, err
}
