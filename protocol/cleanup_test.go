package protocol_test

import (
	"context"
	"testing"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/protocol"
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
		line, err := line(c, path).Standings(lasting(t))
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

				err := protocol.Release(ctx(t), g)

				require.ErrorContains(t, err, "given up")
				require.ErrorIs(t, err, zk.ErrConnectionClosed)
				requireNoContenders(t, srv.Client(t), path)
				require.Zero(t, deletes.Load())
				require.NoError(t, s.Err(), "the session need not end for that")
				require.NoError(t, protocol.Release(lasting(t), hold(t, c, path)))
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

		_, err = protocol.Finish(t.Context(), s, func(life context.Context) (struct{}, error) {
			_, err := protocol.Do(life, s, func(c *zk.Conn) (struct{}, error) {
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
		waiter := later(func() error { _, err := line(c, path).Enter(ctx, bid); return err })
		wait(t, link.Answered(recipestest.OpGetData, 1))
		deletes.Store(3)

		cancel()

		require.ErrorIs(t, wait(t, waiter), context.Canceled)
		requireSoon(t, func() bool {
			line, err := line(other, path).Standings(lasting(t))
			require.NoError(t, err)
			return len(line) == 1
		}, "the waiter's node is left")
		require.Zero(t, deletes.Load())
		require.NoError(t, session(t, c).Err())
		require.NoError(t, protocol.Release(lasting(t), g))
	})
}

func TestCreateIsSettledAfterItsBackOffHasEnded(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link := srv.Root(t)+"/line", srv.Link(t)
		dialer, syncs := breaking(link, recipestest.OpSync)
		c := link.Client(t, dialer, impatient(0))
		require.NoError(t, protocol.Release(lasting(t), hold(t, c, path)))
		link.LoseReply(recipestest.OpCreate, 1)
		syncs.Store(3)

		_, err := line(c, path).Enter(context.Background(), bid)

		require.ErrorContains(t, err, "given up")
		requireNoContenders(t, srv.Client(t), path)
		require.Zero(t, syncs.Load())
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

		_, err = line(c, path).Enter(context.Background(), bid)

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

		require.ErrorIs(t, protocol.Release(context.Background(), g), zk.ErrNoAuth)

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
		g := hold(t, c, path)
		waiter := later(func() *protocol.Grant {
			g, err := line(other, path).Enter(lasting(t), bid)
			require.NoError(t, err)
			return g
		})
		var standings []protocol.Standing
		requireSoon(t, func() (two bool) {
			var err error
			standings, err = line(other, path).Standings(lasting(t))
			require.NoError(t, err)
			return len(standings) == 2
		}, "waits")
		_, err := operator.Conn().SetACL(operator.Path(path), zk.WorldACL(zk.PermAll&^zk.PermDelete), -1)
		require.NoError(t, err)

		err = line(c, path).ReleaseTo(context.Background(), g, standings[1].Name.Node)

		require.ErrorIs(t, err, zk.ErrNoAuth)
		_, err = operator.Conn().SetACL(operator.Path(path), zk.WorldACL(zk.PermAll), -1)
		require.NoError(t, err)
		require.NoError(t, protocol.Release(lasting(t), wait(t, waiter)))
	})
}

func TestHolderThatMayNotReadItsNodeHearsOfABreak(t *testing.T) {
	each(t, func(t *testing.T, srv *recipestest.Server) {
		path, link, other := srv.Root(t)+"/line", srv.Link(t), srv.Client(t)
		_, err := session(t, other).EnsurePath(lasting(t), path[:len(path)-len("/line")])
		require.NoError(t, err)
		c := link.Client(t, protocol.WithSessionTimeout(2*time.Second),
			protocol.WithACL(zk.WorldACL(zk.PermAll&^zk.PermRead)))
		g := hold(t, c, path)
		wait(t, link.Answered(recipestest.OpGetData, 1))
		operator := session(t, other)

		require.NoError(t, operator.Conn().Delete(operator.Path(path)+"/"+g.Node(), -1))

		wait(t, g.Done())
		require.ErrorIs(t, g.Err(), protocol.ErrLost)
		require.ErrorContains(t, g.Err(), "was deleted")
		require.NoError(t, session(t, c).Err())
	})
}
