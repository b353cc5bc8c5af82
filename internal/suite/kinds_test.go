package suite_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/election"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/once"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/rwlock"
	"github.com/zkrecipes/zkrecipes/semaphore"
)

// A release gives back what is held.
type release func(context.Context) error

// hold makes an acquiring call one that says how to release.
func hold[H any](back func(H, context.Context) error) func(H, error) (release, error) {
	return func(h H, err error) (release, error) {
		return func(ctx context.Context) error { return back(h, ctx) }, err
	}
}

var (
	lease  = hold((*lock.Lease).Unlock)
	shared = hold((*rwlock.Lease).Unlock)
)

// An acquiring call blocks until it holds.
type acquiring func(ctx context.Context, c *protocol.Client, path string) (release, error)

// A verbAt calls a verb at a path, and gives back nothing.
type verbAt func(ctx context.Context, c *protocol.Client, path string) error

// keep is the call of a client that keeps what it acquires.
func (a acquiring) keep(ctx context.Context, c *protocol.Client, path string) error {
	return suite.Err(a(ctx, c, path))
}

// acquire makes contenders of each kind that excludes others.
var acquire = map[string]acquiring{
	"mutex": func(ctx context.Context, c *protocol.Client, path string) (release, error) {
		return lease(lock.New(c, path).Lock(ctx))
	},
	"simple": func(ctx context.Context, c *protocol.Client, path string) (release, error) {
		return lease(lock.NewSimple(c, path).Lock(ctx))
	},
	"term": func(ctx context.Context, c *protocol.Client, path string) (release, error) {
		return hold((*election.Term).Resign)(election.New(c, path).Campaign(ctx, []byte("value")))
	},
	"permit": func(ctx context.Context, c *protocol.Client, path string) (release, error) {
		return hold((*semaphore.Permit).Release)(semaphore.New(c, path, 3).Acquire(ctx))
	},
	"reader":         reader(rwlock.Native),
	"Curator reader": reader(rwlock.Curator),
	"kazoo reader":   reader(rwlock.Kazoo),
	"writer":         writer(rwlock.Native),
	"Curator writer": writer(rwlock.Curator),
	"kazoo writer":   writer(rwlock.Kazoo),
	"downgraded": func(ctx context.Context, c *protocol.Client, path string) (release, error) {
		l, err := rwlock.New(c, path, rwlock.WithSpelling(rwlock.Kazoo)).Lock(ctx)
		if err != nil {
			return nil, err
		}
		return shared(l.Downgrade(ctx))
	},
	"run":            running,
	"WriteLock":      foreign("x-72057594037927936-"),
	"WriteLock of C": foreign("x-0100a2b3c4d50000-"),
	"LeaderLatch":    foreign("_c_6e51a3d4-5bb8-4d0f-b2a0-8a9c7d4b3a1e-latch-"),
}

// lingering holds a lock that stays for an hour.
func lingering(ctx context.Context, c *protocol.Client, path string) (release, error) {
	return lease(lock.New(c, path, lock.WithLinger(time.Hour)).Lock(ctx))
}

// onlyPermit holds the permit of a semaphore that has no other.
func onlyPermit(ctx context.Context, c *protocol.Client, path string) (release, error) {
	return hold((*semaphore.Permit).Release)(semaphore.New(c, path, 1).Acquire(ctx))
}

// running holds the right to run a key.
func running(ctx context.Context, c *protocol.Client, path string) (release, error) {
	began, over := make(chan struct{}), make(chan struct{})
	done := suite.Later(func() error {
		return suite.Err(once.New(c, path).Do(ctx, "a/key", func(context.Context, *once.Run) error {
			close(began)
			<-over
			return errors.New("run it again")
		}))
	})
	select {
	case <-began:
	case err := <-done:
		return nil, err
	}
	return func(context.Context) error {
		close(over)
		<-done
		return nil
	}, nil
}

// runKey runs the key, which must not have run before.
func runKey(ctx context.Context, c *protocol.Client, path string) error {
	ran, err := once.New(c, path).Do(ctx, "a/key", func(context.Context, *once.Run) error { return nil })
	if err == nil && !ran {
		err = errors.New("the key has not run")
	}
	return err
}

func reader(s rwlock.Spelling) acquiring {
	return func(ctx context.Context, c *protocol.Client, path string) (release, error) {
		return shared(rwlock.New(c, path, rwlock.WithSpelling(s)).RLock(ctx))
	}
}

func writer(s rwlock.Spelling) acquiring {
	return func(ctx context.Context, c *protocol.Client, path string) (release, error) {
		return shared(rwlock.New(c, path, rwlock.WithSpelling(s)).Lock(ctx))
	}
}

// foreign makes holders of another library, which creates nodes with this prefix.
func foreign(prefix string) acquiring {
	return func(ctx context.Context, c *protocol.Client, path string) (release, error) {
		s, err := recipe.SessionOf(ctx, c)
		if err != nil {
			return nil, err
		}
		if _, err := s.EnsurePath(ctx, path); err != nil {
			return nil, err
		}
		node, err := s.Conn().Create(s.Path(path)+"/"+prefix, nil, zk.FlagEphemeralSequential, zk.WorldACL(zk.PermAll))
		return func(context.Context) error { return s.Conn().Delete(node, -1) }, err
	}
}

// try makes a newcomer of each kind that does not wait.
var try = map[string]verbAt{
	"mutex": func(ctx context.Context, c *protocol.Client, path string) error {
		return suite.Err(lock.New(c, path).TryLock(ctx))
	},
	"simple": func(ctx context.Context, c *protocol.Client, path string) error {
		return suite.Err(lock.NewSimple(c, path).TryLock(ctx))
	},
	"reader": func(ctx context.Context, c *protocol.Client, path string) error {
		return suite.Err(rwlock.New(c, path).TryRLock(ctx))
	},
	"writer": func(ctx context.Context, c *protocol.Client, path string) error {
		return suite.Err(rwlock.New(c, path).TryLock(ctx))
	},
	"permit": func(ctx context.Context, c *protocol.Client, path string) error {
		return suite.Err(semaphore.New(c, path, 3).TryAcquire(ctx))
	},
}

// together are the kinds that hold with each other.
func together(a, b string) bool {
	readers := map[string]bool{"reader": true, "Curator reader": true, "kazoo reader": true, "downgraded": true}
	return readers[a] && readers[b] || a == "permit" && b == "permit"
}

var busy = []error{lock.ErrLocked, rwlock.ErrLocked, semaphore.ErrNoPermit}

// Whatever the recipe of a holder, contenders of all others at its path wait for it.
func TestContendersOfAllRecipesAtAPathRespectEachOther(t *testing.T) {
	for holder := range acquire {
		for newcomer := range acquire {
			foreigner := newcomer == "WriteLock" || newcomer == "WriteLock of C"
			if together(holder, newcomer) || newcomer == "downgraded" || foreigner || newcomer == "LeaderLatch" {
				continue
			}
			suite.Run(t, holder+" before "+newcomer, func(t *testing.T, srv *recipestest.Server) {
				respects(t, srv, holder, newcomer)
			})
		}
	}
}

func respects(t *testing.T, srv *recipestest.Server, holder, newcomer string) {
	path, a, b := srv.Root(t)+"/path", srv.Client(t), srv.Client(t)
	give := suite.Got(acquire[holder](suite.Lasting(t), a, path))(t)

	if try := try[newcomer]; try != nil {
		err := try(suite.Lasting(t), b, path)
		isBusy := slices.ContainsFunc(busy, func(want error) bool { return errors.Is(err, want) })
		require.True(t, isBusy, "granted at once, or refused: %v", err)
	}

	ctx := suite.Lasting(t)
	var failed error
	granted := suite.Later(func() (give release) {
		give, failed = acquire[newcomer](ctx, b, path)
		return give
	})
	time.Sleep(time.Second)
	synctest.Wait()
	require.Empty(t, granted, "granted without waiting")

	require.NoError(t, give(ctx))
	give = suite.Wait(t, granted)
	require.NoError(t, failed)
	require.NoError(t, give(ctx))
}

// A lock that lingers is given back to whoever tries.
func TestTryOfAnyRecipeGetsALockThatNobodyUses(t *testing.T) {
	for newcomer, try := range try {
		suite.Run(t, newcomer, func(t *testing.T, srv *recipestest.Server) {
			ctx, path, c := suite.Lasting(t), srv.Root(t)+"/path", srv.Client(t)
			give := suite.Got(lingering(ctx, srv.Client(t), path))(t)
			require.NoError(t, give(ctx))
			require.NoError(t, try(ctx, c, path))
			suite.Close(t, c)
		})
	}
}
