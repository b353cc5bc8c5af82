package suite_test

import (
	"context"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/election"
	"github.com/zkrecipes/zkrecipes/group"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/queue"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/rwlock"
	"github.com/zkrecipes/zkrecipes/semaphore"
)

// A verbAt calls a verb at a path, and gives back nothing.
type verbAt func(ctx context.Context, c *protocol.Client, path string) error

// A rollout is a verb that a client with a credential uses, and then one that a client without any
// calls meanwhile.
type rollout struct {
	hold, call verbAt

	alone bool // nothing at the path is shared
}

var rollouts = map[string]rollout{
	"lock": {
		func(ctx context.Context, c *protocol.Client, path string) error {
			return errOf(lock.New(c, path).Lock(ctx))
		},
		func(ctx context.Context, c *protocol.Client, path string) error {
			return errOf(lock.New(c, path).Lock(ctx))
		},
		false,
	},
	"rwlock read": {
		func(ctx context.Context, c *protocol.Client, path string) error {
			return errOf(rwlock.New(c, path).Lock(ctx))
		},
		func(ctx context.Context, c *protocol.Client, path string) error {
			return errOf(rwlock.New(c, path).RLock(ctx))
		},
		false,
	},
	"semaphore": {
		func(ctx context.Context, c *protocol.Client, path string) error {
			return errOf(semaphore.New(c, path, 1).Acquire(ctx))
		},
		func(ctx context.Context, c *protocol.Client, path string) error {
			return errOf(semaphore.New(c, path, 1).Acquire(ctx))
		},
		false,
	},
	"leader": {
		func(ctx context.Context, c *protocol.Client, path string) error {
			return errOf(election.New(c, path).Campaign(ctx, nil))
		},
		func(ctx context.Context, c *protocol.Client, path string) error {
			for _, err := range election.New(c, path).Observe(ctx) {
				if err != nil {
					return err
				}
			}
			return nil
		},
		false,
	},
	"group": {
		func(ctx context.Context, c *protocol.Client, path string) error {
			return errOf(group.New(c, path).Join(ctx, "a", nil))
		},
		func(ctx context.Context, c *protocol.Client, path string) error {
			return errOf(group.New(c, path).Join(ctx, "a", nil))
		},
		true,
	},
	"take": {
		func(ctx context.Context, c *protocol.Client, path string) error {
			return errOf(queue.New(c, path).Offer(ctx, nil))
		},
		func(ctx context.Context, c *protocol.Client, path string) error {
			return errOf(queue.New(c, path).Take(ctx))
		},
		false,
	},
	"offer": {
		func(ctx context.Context, c *protocol.Client, path string) error {
			return errOf(queue.New(c, path, queue.WithMaxLength(1)).Offer(ctx, nil))
		},
		func(ctx context.Context, c *protocol.Client, path string) error {
			return errOf(queue.New(c, path, queue.WithMaxLength(1)).OfferWait(ctx, nil))
		},
		false,
	},
}

// A client without a credential is refused, and does not wait, where nodes of a client with one are
// in the way: below a path that the latter has created, and below one that all may change.
func TestClientWithoutACredentialIsRefusedAndDoesNotWait(t *testing.T) {
	for name, r := range rollouts {
		for _, shared := range []bool{false, true} {
			t.Run(name+map[bool]string{false: " own path", true: " shared path"}[shared], func(t *testing.T) {
				recipestest.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
					root := srv.Root(t)
					alice, other := as(t, srv, "alice"), srv.Client(t)
					if shared && r.alone {
						t.Skip("the path is a node of one client alone")
					}
					ensure := root
					if shared {
						ensure += "/x"
					}
					_, err := suite.Session(t, other).EnsurePath(t.Context(), ensure)
					require.NoError(t, err)
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					defer cancel()
					require.NoError(t, r.hold(ctx, alice, root+"/x"))
					err = r.call(ctx, other, root+"/x")
					require.ErrorIs(t, err, zk.ErrNoAuth)
					require.ErrorContains(t, err, "see WithAuth")
					suite.Close(t, alice)
				})
			})
		}
	}
}

// Servers may not tell a client of a creation that it may not see. So it looks now and then.
func TestWatcherOfAMissingPathIsRefusedOnceItMayNotBeRead(t *testing.T) {
	watches := map[string]verbAt{
		"leader": rollouts["leader"].call,
		"group": func(ctx context.Context, c *protocol.Client, path string) error {
			return errOf(group.New(c, path).Await(ctx, 1))
		},
	}
	for name, watch := range watches {
		t.Run(name, func(t *testing.T) {
			recipestest.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
				root := srv.Root(t)
				alice, other := as(t, srv, "alice"), srv.Client(t)
				_, err := suite.Session(t, other).EnsurePath(t.Context(), root)
				require.NoError(t, err)
				watched := suite.Later(func() error { return watch(t.Context(), other, root+"/x") })
				time.Sleep(time.Second)
				require.NoError(t, rollouts[name].hold(t.Context(), alice, root+"/x"))
				time.Sleep(2 * time.Minute)
				require.ErrorIs(t, suite.Wait(t, watched), zk.ErrNoAuth)
				suite.Close(t, alice)
			})
		})
	}
}
