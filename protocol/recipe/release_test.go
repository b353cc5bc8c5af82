package recipe_test

import (
	"context"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// The work goes on after the back-off of its caller has ended. (A create has to be settled.)
func TestWorkGoesOnAfterItsBackOffHasEnded(t *testing.T) {
	for name, c := range map[string]struct {
		creates bool
		ctx     func(testing.TB) context.Context
	}{
		"release with a deadline": {false, suite.Lasting},
		"release without an end":  {false, func(testing.TB) context.Context { return context.Background() }},
		"create":                  {true, func(testing.TB) context.Context { return context.Background() }},
	} {
		suite.Run(t, name, func(t *testing.T, srv *recipestest.Server) {
			path, link := srv.Root(t)+"/line", srv.Link(t)
			dialer, deletes := suite.Breaking(link, recipestest.OpDelete)
			client := link.Client(t, dialer, impatient(2))
			call := suite.Hold(t, client, path).Release
			if c.creates {
				require.NoError(t, call(suite.Lasting(t)))
				link.LoseReply(recipestest.OpCreate, 1)
				call = func(ctx context.Context) error {
					_, err := suite.LineAt(client, path).Enter(ctx, suite.Request)
					return err
				}
			}
			s := suite.Session(t, client)
			deletes.Store(5)

			err := call(c.ctx(t))

			require.ErrorContains(t, err, "given up")
			require.ErrorIs(t, err, zk.ErrConnectionClosed)
			requireNoContenders(t, srv.Client(t), path)
			require.Zero(t, deletes.Load())
			require.NoError(t, s.Err(), "the session need not end for that")
			require.NoError(t, suite.Hold(t, client, path).Release(suite.Lasting(t)))
		})
	}
}

// Work that the servers refuse is done once they allow it. (Without the permission to list the
// line, a client whose create got no reply doesn't know whether it has a node there.)
func TestWorkThatIsRefusedIsDoneWhenItIsAllowed(t *testing.T) {
	for name, permission := range map[string]int32{"create that may not be settled": zk.PermRead, "release": zk.PermDelete} {
		t.Run(name, func(t *testing.T) {
			suite.EmbeddedAndReal(t, func(t *testing.T, srv *recipestest.Server) {
				path, link, other := srv.Root(t)+"/line", srv.Link(t), srv.Client(t)
				c, operator := link.Client(t), suite.Session(t, other)
				suite.Keep(t, other, path)
				call := func() error { _, err := suite.LineAt(c, path).Enter(context.Background(), suite.Request); return err }
				if name == "release" {
					g := suite.Hold(t, c, path)
					call = func() error { return g.Release(context.Background()) }
				} else {
					link.LoseReply(recipestest.OpCreate, 1)
				}
				allow := func(permissions int32) {
					suite.Got(operator.Conn().SetACL(operator.Path(path), zk.WorldACL(permissions), -1))(t)
				}

				allow(zk.PermAll &^ permission)
				require.ErrorIs(t, call(), zk.ErrNoAuth)
				allow(zk.PermAll)
				requireNoContenders(t, other, path)
				require.NoError(t, suite.Session(t, c).Err())
			})
		})
	}
}

// The deletion goes on in the background, so it is this deletion that counts.
func TestReleaseWithSaysWhoDeletesTheNodeThoughCtxHasEnded(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		c, path := srv.Client(t), srv.Root(t)+"/line"
		g := suite.Hold(t, c, path)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		remove := func(ctx context.Context, s *recipe.Session) error { return s.Delete(ctx, path+"/"+g.Node(), -1) }

		begun, err := g.ReleaseWith(ctx, remove)
		require.ErrorIs(t, err, context.Canceled)
		require.True(t, begun)
		begun, err = g.ReleaseWith(t.Context(), remove)
		require.ErrorIs(t, err, protocol.ErrReleased)
		require.False(t, begun)
		requireNoContenders(t, c, path)
	})
}
