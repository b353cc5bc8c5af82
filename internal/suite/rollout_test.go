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
)

// A rollout is a verb that a client with a credential uses, and then one that a client without any
// calls meanwhile.
type rollout struct {
	hold, call verbAt

	alone bool // nothing at the path is shared
}

var rollouts = map[string]rollout{
	"lock":        {acquire["mutex"].keep, acquire["mutex"].keep, false},
	"rwlock read": {acquire["writer"].keep, acquire["reader"].keep, false},
	"semaphore":   {acquiring(onlyPermit).keep, acquiring(onlyPermit).keep, false},
	"leader":      {acquire["term"].keep, observing, false},
	"group":       {joining, joining, true},
	"take": {
		func(ctx context.Context, c *protocol.Client, path string) error {
			return suite.Err(queue.New(c, path).Offer(ctx, nil))
		},
		func(ctx context.Context, c *protocol.Client, path string) error {
			return suite.Err(queue.New(c, path).Take(ctx))
		},
		false,
	},
	"offer": {
		func(ctx context.Context, c *protocol.Client, path string) error {
			return suite.Err(queue.New(c, path, queue.WithMaxLength(1)).Offer(ctx, nil))
		},
		func(ctx context.Context, c *protocol.Client, path string) error {
			return suite.Err(queue.New(c, path, queue.WithMaxLength(1)).OfferWait(ctx, nil))
		},
		false,
	},
}

// observing goes on until an error.
func observing(ctx context.Context, c *protocol.Client, path string) error {
	return lastError(election.New(c, path).Observe(ctx))
}

func joining(ctx context.Context, c *protocol.Client, path string) error {
	return suite.Err(group.New(c, path).Join(ctx, "name", nil))
}

// A client without a credential is refused, and does not wait, where nodes of a client with one are
// in the way: below a path that the latter has created, and below one that all may change.
func TestClientWithoutACredentialIsRefusedAndDoesNotWait(t *testing.T) {
	for name, r := range rollouts {
		for whose, ensured := range map[string]string{"own path": "", "shared path": "/x"} {
			if r.alone && ensured != "" {
				continue // the path is a node of one client alone
			}
			t.Run(name+" "+whose, func(t *testing.T) {
				recipestest.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
					root := srv.Root(t)
					alice, other := as(t, srv, "alice"), srv.Client(t)
					suite.Ensure(t, suite.Session(t, other), root+ensured)
					ctx := suite.Within(t, time.Minute)
					require.NoError(t, r.hold(ctx, alice, root+"/x"))
					err := r.call(ctx, other, root+"/x")
					require.ErrorIs(t, err, zk.ErrNoAuth)
					require.ErrorContains(t, err, "see WithAuth")
					suite.Close(t, alice)
				})
			})
		}
	}
}

// It sees who is in line all the same, by the names.
func TestContenderThatMayNotBeReadIsListed(t *testing.T) {
	recipestest.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/x"
		alice, other := as(t, srv, "alice"), srv.Client(t)
		suite.Ensure(t, suite.Session(t, other), path)
		held := suite.Must(t, lock.New(alice, path).Lock)

		line := suite.Must(t, lock.New(other, path).Contenders)
		require.Equal(t, []lock.Contender{{Node: held.Node(), Session: suite.Session(t, alice).ID(), Holds: true}}, line)
		suite.Close(t, alice)
	})
}

// Servers may not tell a client of a creation that it may not see. So it looks now and then.
func TestWatcherOfAMissingPathIsRefusedOnceItMayNotBeRead(t *testing.T) {
	watches := map[string]verbAt{
		"leader": observing,
		"group": func(ctx context.Context, c *protocol.Client, path string) error {
			return suite.Err(group.New(c, path).Await(ctx, 1))
		},
	}
	for name, watch := range watches {
		t.Run(name, func(t *testing.T) {
			recipestest.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
				root := srv.Root(t)
				alice, other := as(t, srv, "alice"), srv.Client(t)
				suite.Ensure(t, suite.Session(t, other), root)
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
