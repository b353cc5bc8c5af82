package suite_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/barrier"
	"github.com/zkrecipes/zkrecipes/doublebarrier"
	"github.com/zkrecipes/zkrecipes/election"
	"github.com/zkrecipes/zkrecipes/group"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/once"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/queue"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/rwlock"
	"github.com/zkrecipes/zkrecipes/semaphore"
)

// A release gives back what is held.
type release func(context.Context) error

// acquire makes contenders of each kind that excludes others. It blocks until they hold.
var acquire = map[string]func(ctx context.Context, c *protocol.Client, path string) (release, error){
	"mutex": func(ctx context.Context, c *protocol.Client, path string) (release, error) {
		l, err := lock.New(c, path).Lock(ctx)
		return l.Unlock, err
	},
	"simple": func(ctx context.Context, c *protocol.Client, path string) (release, error) {
		l, err := lock.NewSimple(c, path).Lock(ctx)
		return l.Unlock, err
	},
	"term": func(ctx context.Context, c *protocol.Client, path string) (release, error) {
		t, err := election.New(c, path).Campaign(ctx, nil)
		return t.Resign, err
	},
	"reader":         reader(rwlock.Native),
	"Curator reader": reader(rwlock.Curator),
	"kazoo reader":   reader(rwlock.Kazoo),
	"writer":         writer(rwlock.Native),
	"Curator writer": writer(rwlock.Curator),
	"kazoo writer":   writer(rwlock.Kazoo),
	"downgraded": func(ctx context.Context, c *protocol.Client, path string) (release, error) {
		l, err := rwlock.New(c, path, rwlock.WithSpelling(rwlock.Kazoo)).Lock(ctx)
		if err == nil {
			l, err = l.Downgrade(ctx)
		}
		return l.Unlock, err
	},
	"permit": func(ctx context.Context, c *protocol.Client, path string) (release, error) {
		p, err := semaphore.New(c, path, 2).Acquire(ctx)
		return p.Release, err
	},
	"run": func(ctx context.Context, c *protocol.Client, path string) (release, error) {
		running, over := make(chan struct{}), make(chan struct{})
		done := suite.Later(func() error {
			_, err := once.New(c, path).Do(ctx, "key", func(ctx context.Context, _ int64) error {
				close(running)
				select {
				case <-over:
				case <-ctx.Done():
				}
				return errors.New("run it again")
			})
			return err
		})
		select {
		case <-running:
		case err := <-done:
			return nil, err
		}
		return func(context.Context) error {
			close(over)
			<-done
			return nil
		}, nil
	},
	"WriteLock":      foreign("x-72057594037927936-"),
	"WriteLock of C": foreign("x-0100a2b3c4d50000-"),
}

func reader(s rwlock.Spelling) func(context.Context, *protocol.Client, string) (release, error) {
	return func(ctx context.Context, c *protocol.Client, path string) (release, error) {
		l, err := rwlock.New(c, path, rwlock.WithSpelling(s)).RLock(ctx)
		return l.Unlock, err
	}
}

func writer(s rwlock.Spelling) func(context.Context, *protocol.Client, string) (release, error) {
	return func(ctx context.Context, c *protocol.Client, path string) (release, error) {
		l, err := rwlock.New(c, path, rwlock.WithSpelling(s)).Lock(ctx)
		return l.Unlock, err
	}
}

// foreign makes holders of another library, which creates nodes with this prefix.
func foreign(prefix string) func(context.Context, *protocol.Client, string) (release, error) {
	return func(ctx context.Context, c *protocol.Client, path string) (release, error) {
		s, err := c.Session(ctx)
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
var try = map[string]func(ctx context.Context, c *protocol.Client, path string) error{
	"mutex": func(ctx context.Context, c *protocol.Client, path string) error {
		_, err := lock.New(c, path).TryLock(ctx)
		return err
	},
	"simple": func(ctx context.Context, c *protocol.Client, path string) error {
		_, err := lock.NewSimple(c, path).TryLock(ctx)
		return err
	},
	"reader": func(ctx context.Context, c *protocol.Client, path string) error {
		_, err := rwlock.New(c, path).TryRLock(ctx)
		return err
	},
	"writer": func(ctx context.Context, c *protocol.Client, path string) error {
		_, err := rwlock.New(c, path).TryLock(ctx)
		return err
	},
	"permit": func(ctx context.Context, c *protocol.Client, path string) error {
		_, err := semaphore.New(c, path, 2).TryAcquire(ctx)
		return err
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
			if together(holder, newcomer) || newcomer == "downgraded" || foreigner {
				continue
			}
			t.Run(holder+" before "+newcomer, func(t *testing.T) {
				suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) { respects(t, srv, holder, newcomer) })
			})
		}
	}
}

func respects(t *testing.T, srv *recipestest.Server, holder, newcomer string) {
	path, a, b := srv.Root(t)+"/path", srv.Client(t), srv.Client(t)
	give, err := acquire[holder](suite.Lasting(t), a, path)
	require.NoError(t, err)

	if try := try[newcomer]; try != nil {
		err := try(suite.Lasting(t), b, path)
		require.Error(t, err, "granted at once")
		for _, want := range busy {
			if errors.Is(err, want) {
				err = nil
			}
		}
		require.NoError(t, err)
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

// Recipes without contenders in line share a path with a lock, each as if it were alone.
func TestRecipesWithoutALineShareAPathWithALock(t *testing.T) {
	for name, use := range map[string]func(ctx context.Context, c *protocol.Client, path string) error{
		"queue": func(ctx context.Context, c *protocol.Client, path string) error {
			q := queue.New(c, path)
			if _, err := q.Offer(ctx, []byte("entry")); err != nil {
				return err
			}
			_, err := q.Take(ctx)
			return err
		},
		"double barrier": func(ctx context.Context, c *protocol.Client, path string) error {
			return doublebarrier.New(c, path, 1).Do(ctx, func(context.Context) error { return nil })
		},
		"group": func(ctx context.Context, c *protocol.Client, path string) error {
			m, err := group.New(c, path).Join(ctx, "me", nil)
			if err != nil {
				return err
			}
			return m.Leave(ctx)
		},
		"barrier": func(ctx context.Context, c *protocol.Client, path string) error {
			return barrier.New(c, path).Set(ctx)
		},
	} {
		t.Run(name, func(t *testing.T) {
			suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
				for _, first := range []bool{true, false} {
					path, a, b := fmt.Sprintf("%s/%v", srv.Root(t), first), srv.Client(t), srv.Client(t)
					if first {
						require.NoError(t, use(suite.Lasting(t), b, path))
					}
					l, err := lock.New(a, path).Lock(suite.Lasting(t))
					require.NoError(t, err)
					require.NoError(t, use(suite.Lasting(t), b, path))
					require.NoError(t, l.Err())
					require.ErrorIs(t, try["writer"](suite.Lasting(t), b, path), rwlock.ErrLocked)
					require.NoError(t, l.Unlock(suite.Lasting(t)))
				}
			})
		})
	}
}
