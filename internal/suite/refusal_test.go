package suite_test

import (
	"context"
	"errors"
	"maps"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/barrier"
	"github.com/zkrecipes/zkrecipes/doublebarrier"
	"github.com/zkrecipes/zkrecipes/election"
	"github.com/zkrecipes/zkrecipes/group"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/internal/zkwire"
	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/once"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/queue"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/recipestest/ensemble"
	"github.com/zkrecipes/zkrecipes/rwlock"
	"github.com/zkrecipes/zkrecipes/semaphore"
)

// entries are what a queue has at first, beside the path that a verb is given: enough for two
// calls.
func entries(t *testing.T, srv *recipestest.Server, path string) {
	t.Helper()
	_, err := queue.New(srv.Client(t), path+"-full").OfferAll(t.Context(), [][]byte{{1}, {2}})
	require.NoError(t, err)
}

// verbs are those that need a write, of all recipes. Each gives back what it has acquired.
var verbs = map[string]func(ctx context.Context, c *protocol.Client, path string) error{
	"lock": func(ctx context.Context, c *protocol.Client, path string) error {
		return lock.New(c, path).Do(ctx, func(context.Context, *lock.Lease) error { return nil })
	},
	"try lock": func(ctx context.Context, c *protocol.Client, path string) error {
		return lock.New(c, path).TryDo(ctx, func(context.Context, *lock.Lease) error { return nil })
	},
	"simple lock": func(ctx context.Context, c *protocol.Client, path string) error {
		return lock.NewSimple(c, path).Do(ctx, func(context.Context, *lock.Lease) error { return nil })
	},
	"rwlock": func(ctx context.Context, c *protocol.Client, path string) error {
		return rwlock.New(c, path).Do(ctx, func(context.Context, *rwlock.Lease) error { return nil })
	},
	"reader": func(ctx context.Context, c *protocol.Client, path string) error {
		return rwlock.New(c, path).RDo(ctx, func(context.Context, *rwlock.Lease) error { return nil })
	},
	"semaphore": func(ctx context.Context, c *protocol.Client, path string) error {
		return semaphore.New(c, path, 2).Do(ctx, func(context.Context, *semaphore.Permit) error { return nil })
	},
	"resize": func(ctx context.Context, c *protocol.Client, path string) error {
		return semaphore.New(c, path, 2).Resize(ctx, 3)
	},
	"once": func(ctx context.Context, c *protocol.Client, path string) error {
		_, err := once.New(c, path).Do(ctx, "key", func(context.Context, int64) error { return nil })
		return err
	},
	"election": func(ctx context.Context, c *protocol.Client, path string) error {
		term, err := election.New(c, path).Campaign(ctx, nil)
		if err != nil {
			return err
		}
		return term.Resign(ctx)
	},
	"group": func(ctx context.Context, c *protocol.Client, path string) error {
		m, err := group.New(c, path).Join(ctx, "a", nil)
		if err != nil {
			return err
		}
		return m.Leave(ctx)
	},
	"offer": func(ctx context.Context, c *protocol.Client, path string) error {
		_, err := queue.New(c, path).Offer(ctx, []byte("x"))
		return err
	},
	"offer with a key": func(ctx context.Context, c *protocol.Client, path string) error {
		_, err := queue.New(c, path).OfferKey(ctx, "key", []byte("x"))
		return err
	},
	"take": func(ctx context.Context, c *protocol.Client, path string) error {
		_, err := queue.New(c, path+"-full").Take(ctx)
		return err
	},
	"reserve": func(ctx context.Context, c *protocol.Client, path string) error {
		it, err := queue.New(c, path+"-full").Reserve(ctx)
		if err != nil {
			return err
		}
		return it.Ack(ctx)
	},
	"barrier": func(ctx context.Context, c *protocol.Client, path string) error {
		b := barrier.New(c, path)
		if err := b.Set(ctx); err != nil {
			return err
		}
		return b.Remove(ctx)
	},
	"double barrier": func(ctx context.Context, c *protocol.Client, path string) error {
		return doublebarrier.New(c, path, 1).Do(ctx, func(context.Context) error { return nil })
	},
}

// reads are verbs that write nothing.
var reads = map[string]func(ctx context.Context, c *protocol.Client, path string) error{
	"contenders": func(ctx context.Context, c *protocol.Client, path string) error {
		_, err := lock.New(c, path).Contenders(ctx)
		return err
	},
	"leader": func(ctx context.Context, c *protocol.Client, path string) error {
		if _, err := election.New(c, path).Leader(ctx); !errors.Is(err, election.ErrNoLeader) {
			return err
		}
		return nil
	},
	"members": func(ctx context.Context, c *protocol.Client, path string) error {
		_, err := group.New(c, path).Members(ctx)
		return err
	},
	"length": func(ctx context.Context, c *protocol.Client, path string) error {
		_, err := queue.New(c, path+"-full").Len(ctx)
		return err
	},
	"peek": func(ctx context.Context, c *protocol.Client, path string) error {
		_, err := queue.New(c, path+"-full").Peek(ctx)
		return err
	},
	"barrier that is not set": func(ctx context.Context, c *protocol.Client, path string) error {
		return barrier.New(c, path).Wait(ctx)
	},
}

func TestRefusalsThatMayPassAreTriedAgain(t *testing.T) {
	for _, code := range []zkwire.Code{zkwire.CodeThrottled, zkwire.CodeSessionMoved, zkwire.CodeReadOnly} {
		all := maps.Clone(verbs)
		maps.Copy(all, reads)
		for name, verb := range all {
			t.Run(code.String()+"/"+name, func(t *testing.T) {
				suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
					link, root := srv.Link(t), srv.Root(t)
					c := link.Client(t)
					for step := 1; step <= 4; step++ { // one request more is refused in each step
						entries(t, srv, root+"/"+string(rune('a'+step)))
						link.Fail(recipestest.OpAny, "", int32(code), step)
						require.NoError(t, verb(suite.Lasting(t), c, root+"/"+string(rune('a'+step))))
						link.Fail(recipestest.OpAny, "", 0, 0)
					}
				})
			})
		}
	}
}

// writes are the operations that add a node.
var writes = []recipestest.Op{recipestest.OpCreate, recipestest.OpCreateContainer, recipestest.OpMulti}

func TestRefusalsThatLastAreReturned(t *testing.T) {
	for code, want := range map[zkwire.Code]error{
		zkwire.CodeQuotaExceeded: protocol.ErrQuotaExceeded,
		zkwire.CodeAuthRequired:  protocol.ErrAuthRequired,
	} {
		for name, verb := range verbs {
			t.Run(code.String()+"/"+name, func(t *testing.T) {
				suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
					link, root := srv.Link(t), srv.Root(t)
					c := link.Client(t)
					s := suite.Session(t, c)
					entries(t, srv, root)
					for _, op := range writes {
						link.Fail(op, "", int32(code), 1<<20)
					}
					err := verb(suite.Lasting(t), c, root)
					require.ErrorIs(t, err, want)
					require.NotErrorIs(t, err, protocol.ErrUncertain)
					require.ErrorContains(t, err, want.Error())
					for _, op := range writes {
						link.Fail(op, "", 0, 0)
					}

					require.NoError(t, verb(suite.Lasting(t), c, root))
					require.Equal(t, s, suite.Session(t, c))
				})
			})
		}
	}
}

func TestCallThatEndsWhileRefusedSaysWhy(t *testing.T) {
	for code, want := range map[zkwire.Code]error{
		zkwire.CodeThrottled:    protocol.ErrThrottled,
		zkwire.CodeReadOnly:     protocol.ErrReadOnly,
		zkwire.CodeSessionMoved: zk.ErrSessionMoved,
	} {
		t.Run(code.String(), func(t *testing.T) {
			suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
				link, root := srv.Link(t), srv.Root(t)
				c := link.Client(t)
				for _, op := range writes {
					link.Fail(op, "", int32(code), 1<<20)
				}
				_, err := lock.New(c, root).Lock(suite.Within(t, 3*time.Second))
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.ErrorIs(t, err, want)
			})
		})
	}
}

// A server that demands a credential ends the sessions of those that have none.
func TestServerThatDemandsACredentialIsNotAskedAgain(t *testing.T) {
	t.Parallel()
	suite.Needs(t, ensemble.Real(t), suite.EnforcedAuth)
	server := ensemble.Start(t, 1, ensemble.WithJVMFlags("-Dzookeeper.enforce.auth.enabled=true", "-Dzookeeper.enforce.auth.schemes=digest"),
		ensemble.WithConfig("enforce.auth.enabled=true", "enforce.auth.schemes=digest")).Members()[0]
	anonymous, err := protocol.Connect(suite.Lasting(t), server.ConnectString())
	require.NoError(t, err)
	defer suite.Close(t, anonymous)
	_, err = lock.New(anonymous, "/lock").Lock(suite.Lasting(t))
	require.ErrorIs(t, err, protocol.ErrAuthRequired)

	alice, err := protocol.Connect(suite.Lasting(t), server.ConnectString(), protocol.WithAuth("digest", []byte("alice:secret")))
	require.NoError(t, err)
	defer suite.Close(t, alice)
	require.NoError(t, lock.New(alice, "/lock").Do(suite.Lasting(t), func(context.Context, *lock.Lease) error { return nil }))
}

func TestQuotaOfARealServer(t *testing.T) {
	t.Parallel()
	suite.Needs(t, ensemble.Real(t), suite.EnforcedQuota)
	server := ensemble.Start(t, 1, ensemble.WithJVMFlags("-Dzookeeper.enforceQuota=true")).Members()[0]
	c, err := protocol.Connect(suite.Lasting(t), server.ConnectString())
	require.NoError(t, err)
	defer suite.Close(t, c)
	s := suite.Session(t, c)
	_, err = s.EnsurePath(suite.Lasting(t), "/full/lock")
	require.NoError(t, err)
	for _, dir := range []string{"/zookeeper/quota/full"} {
		require.NoError(t, s.Create(suite.Lasting(t), dir, nil, 0))
	}
	limit := []byte("count=-1,bytes=-1=;byteHardLimit=-1;countHardLimit=2")
	require.NoError(t, s.Create(suite.Lasting(t), "/zookeeper/quota/full/zookeeper_limits", limit, 0))
	require.NoError(t, s.Create(suite.Lasting(t), "/zookeeper/quota/full/zookeeper_stats", []byte("count=2,bytes=0"), 0))

	_, err = lock.New(c, "/full/lock").Lock(suite.Lasting(t))
	require.ErrorIs(t, err, protocol.ErrQuotaExceeded)
	_, err = queue.New(c, "/full/queue").Offer(suite.Lasting(t), []byte("x"))
	require.ErrorIs(t, err, protocol.ErrQuotaExceeded)
	require.False(t, errors.Is(err, protocol.ErrUncertain))
}
