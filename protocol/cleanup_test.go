package protocol_test

import (
	"context"
	"testing"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/election"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/line"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

func impatient(retries uint64) protocol.Option {
	return protocol.WithBackOff(func() backoff.BackOff {
		return backoff.WithMaxRetries(backoff.NewConstantBackOff(time.Millisecond), retries)
	})
}

// requireNoContenders waits until nothing stands in line at path.
func requireNoContenders(t testing.TB, c *protocol.Client, path string) {
	t.Helper()
	requireSoon(t, func() bool {
		line, err := lineAt(c, path).Contenders(lasting(t))
		require.NoError(t, err)
		return len(line) == 0
	}, "a node is left")
}

func TestReleaseGoesOnAfterItsBackOffHasEnded(t *testing.T) {
	for name, ctx := range map[string]func(testing.TB) context.Context{
		"with a deadline": lasting,
		"without an end":  func(testing.TB) context.Context { return context.Background() },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *recipestest.Server) {
				path, link := srv.Root(t)+"/line", srv.Link(t)
				dialer, deletes := breaking(link, recipestest.OpDelete)
				c := link.Client(t, dialer, impatient(2))
				g := hold(t, c, path)
				s := session(t, c)
				deletes.Store(5)

				err := g.Release(ctx(t))

				require.ErrorContains(t, err, "given up")
				require.ErrorIs(t, err, zk.ErrConnectionClosed)
				requireNoContenders(t, srv.Client(t), path)
				require.Zero(t, deletes.Load())
				require.NoError(t, s.Err(), "the session need not end for that")
				require.NoError(t, hold(t, c, path).Release(lasting(t)))
			})
		})
	}
}

func TestFinishGoesOnAfterItsBackOffHasEnded(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link := srv.Root(t)+"/node", srv.Link(t)
		dialer, deletes := breaking(link, recipestest.OpDelete)
		s := session(t, link.Client(t, dialer, impatient(0)))
		_, err := s.EnsurePath(lasting(t), path)
		require.NoError(t, err)
		deletes.Store(5)
		finished, undone := make(chan error, 1), make(chan struct{})

		_, err = recipe.Detach(t.Context(), s, func(life context.Context, s *recipe.Session) (struct{}, error) {
			_, err := recipe.Do(life, s, func(c *zk.Conn) (struct{}, error) {
				return struct{}{}, c.Delete(s.Path(path), -1)
			})
			finished <- err
			return struct{}{}, err
		}, func(struct{}) { close(undone) })

		require.ErrorContains(t, err, "given up")
		require.NoError(t, wait(t, finished))
		wait(t, undone)
	})
}

func TestWithdrawalGoesOnAfterItsBackOffHasEnded(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link := srv.Root(t)+"/line", srv.Link(t)
		dialer, deletes := breaking(link, recipestest.OpDelete)
		c := link.Client(t, dialer, impatient(0))
		other := srv.Client(t)
		g := hold(t, other, path)
		ctx, cancel := context.WithCancel(t.Context())
		waiter := later(func() error { _, err := lineAt(c, path).Enter(ctx, request); return err })
		wait(t, link.Answered(recipestest.OpGetData, 1))
		deletes.Store(3)

		cancel()

		require.ErrorIs(t, wait(t, waiter), context.Canceled)
		requireSoon(t, func() bool {
			line, err := lineAt(other, path).Contenders(lasting(t))
			require.NoError(t, err)
			return len(line) == 1
		}, "the waiter's node is left")
		require.Zero(t, deletes.Load())
		require.NoError(t, session(t, c).Err())
		require.NoError(t, g.Release(lasting(t)))
	})
}

func TestCreateIsSettledAfterItsBackOffHasEnded(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link := srv.Root(t)+"/line", srv.Link(t)
		dialer, fences := breaking(link, recipestest.OpDelete)
		c := link.Client(t, dialer, impatient(0))
		require.NoError(t, hold(t, c, path).Release(lasting(t)))
		link.LoseReply(recipestest.OpCreate, 1)
		fences.Store(3)

		_, err := lineAt(c, path).Enter(context.Background(), request)

		require.ErrorContains(t, err, "given up")
		requireNoContenders(t, srv.Client(t), path)
		require.Zero(t, fences.Load())
		require.NoError(t, session(t, c).Err())
	})
}

// The line may not be listed, so that the client cannot know whether it stands there.
func TestCreateThatMayNotBeSettledIsUndoneWhenItMay(t *testing.T) {
	each(t, func(t *testing.T, srv *recipestest.Server) {
		path, link, other := srv.Root(t)+"/line", srv.Link(t), srv.Client(t)
		operator := session(t, other)
		_, err := operator.EnsurePath(lasting(t), path)
		require.NoError(t, err)
		_, err = operator.Conn().SetACL(operator.Path(path), zk.WorldACL(zk.PermAll&^zk.PermRead), -1)
		require.NoError(t, err)
		c := link.Client(t)
		link.LoseReply(recipestest.OpCreate, 1)

		_, err = lineAt(c, path).Enter(context.Background(), request)

		require.ErrorIs(t, err, zk.ErrNoAuth)
		_, err = operator.Conn().SetACL(operator.Path(path), zk.WorldACL(zk.PermAll), -1)
		require.NoError(t, err)
		requireNoContenders(t, other, path)
		require.NoError(t, session(t, c).Err())
	})
}

func TestReleaseThatIsRefusedIsDoneWhenItIsAllowed(t *testing.T) {
	each(t, func(t *testing.T, srv *recipestest.Server) {
		path, other := srv.Root(t)+"/line", srv.Client(t)
		operator := session(t, other)
		c := srv.Client(t)
		g := hold(t, c, path)
		_, err := operator.Conn().SetACL(operator.Path(path), zk.WorldACL(zk.PermAll&^zk.PermDelete), -1)
		require.NoError(t, err)

		require.ErrorIs(t, g.Release(context.Background()), zk.ErrNoAuth)

		_, err = operator.Conn().SetACL(operator.Path(path), zk.WorldACL(zk.PermAll), -1)
		require.NoError(t, err)
		requireNoContenders(t, other, path)
		require.NoError(t, session(t, c).Err())
	})
}

func TestReleaseToThatIsRefusedIsARelease(t *testing.T) {
	each(t, func(t *testing.T, srv *recipestest.Server) {
		path, other := srv.Root(t)+"/line", srv.Client(t)
		operator := session(t, other)
		c := srv.Client(t)
		term, err := election.New(c, path).Campaign(lasting(t), nil)
		require.NoError(t, err)
		waiter := later(func() *recipe.Grant {
			g, err := lineAt(other, path).Enter(lasting(t), request)
			require.NoError(t, err)
			return g
		})
		var standings []line.Contender
		requireSoon(t, func() (two bool) {
			var err error
			standings, err = lineAt(other, path).Contenders(lasting(t))
			require.NoError(t, err)
			return len(standings) == 2
		}, "waits")
		_, err = operator.Conn().SetACL(operator.Path(path), zk.WorldACL(zk.PermAll&^zk.PermDelete), -1)
		require.NoError(t, err)

		err = term.ResignTo(context.Background(), standings[1].Node)

		require.ErrorIs(t, err, zk.ErrNoAuth)
		_, err = operator.Conn().SetACL(operator.Path(path), zk.WorldACL(zk.PermAll), -1)
		require.NoError(t, err)
		require.NoError(t, wait(t, waiter).Release(lasting(t)))
	})
}

func TestHolderThatMayNotReadItsNodeHearsOfABreak(t *testing.T) {
	each(t, func(t *testing.T, srv *recipestest.Server) {
		// Without containers the server ends the connection, and then the holder has to read.
		suite.Needs(t, srv, suite.Containers)
		path, link, other := srv.Root(t)+"/line", srv.Link(t), srv.Client(t)
		_, err := session(t, other).EnsurePath(lasting(t), path[:len(path)-len("/line")])
		require.NoError(t, err)
		c := link.Client(t, protocol.WithSessionTimeout(6*time.Second),
			protocol.WithACL(zk.WorldACL(zk.PermAll&^zk.PermRead)))
		g := hold(t, c, path)
		wait(t, link.Answered(recipestest.OpGetData, 1))
		operator := session(t, other)

		require.NoError(t, operator.Conn().Delete(operator.Path(path)+"/"+g.Node(), -1))

		wait(t, g.Done())
		require.ErrorIs(t, g.Err(), protocol.ErrLost)
		require.ErrorIs(t, g.Err(), protocol.ErrNodeDeleted)
		require.NotErrorIs(t, g.Err(), protocol.ErrUntrusted)
		require.NoError(t, session(t, c).Err())
	})
}

// Work that outlives its caller ends with the session, and what it releases is lost with that.
func TestReleaseInDetachedWorkSaysThatTheSessionIsLost(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link := srv.Root(t)+"/line", srv.Link(t)
		c := link.Client(t)
		g, s := hold(t, c, path), session(t, c)
		link.Stall()

		released := later(func() error {
			_, err := recipe.Detach(t.Context(), s, func(ctx context.Context, s *recipe.Session) (struct{}, error) {
				return struct{}{}, g.Release(ctx)
			}, nil)
			return err
		})

		require.ErrorIs(t, wait(t, released), protocol.ErrLost)
		link.Heal()
	})
}
