package protocol_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/zkwire"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

func TestSetDataThatCannotSucceedSendsNothing(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link := srv.Link(t)
		g := hold(t, link.Client(t), srv.Root(t)+"/line")
		time.Sleep(time.Second) // until the node is watched
		before := link.Count(recipestest.OpAny)
		require.ErrorIs(t, g.SetData(lasting(t), make([]byte, recipe.MaxData)), protocol.ErrTooLarge)
		var none context.Context
		require.ErrorContains(t, g.SetData(none, nil), "nil context")
		require.Equal(t, before, link.Count(recipestest.OpAny))

		release(t, g)
		before = link.Count(recipestest.OpAny)
		require.ErrorIs(t, g.SetData(lasting(t), nil), protocol.ErrReleased)
		require.Equal(t, before, link.Count(recipestest.OpAny))
	})
}

// The answer is lost, and the next server does not know yet that the data were set.
func TestSetDataOverAServerThatLagsIsNotRepeated(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link, follower := srv.Root(t)+"/line", srv.Link(t), srv.Embedded().Follower()
		g := hold(t, link.Client(t), path)
		follower.Lag(time.Second)
		link.Move(follower)
		link.LoseReply(recipestest.OpSetData, 1)
		require.NoError(t, g.SetData(lasting(t), []byte("new")))
		_, stat, err := session(t, srv.Client(t)).Get(lasting(t), path+"/"+g.Node())
		require.NoError(t, err)
		require.EqualValues(t, 1, stat.Version)
		release(t, g)
	})
}

// The answer is lost, and whether the data were set cannot be found out.
func TestSetDataReturnsWhyItsOutcomeIsUnknown(t *testing.T) {
	for name, test := range map[string]struct {
		refuse recipestest.Op
		perms  int32
		want   error
	}{
		"read is refused":     {recipestest.OpGetData, zk.PermAll, zk.ErrNotEmpty},
		"read is not allowed": {0, zk.PermAll &^ zk.PermRead, protocol.ErrUncertain},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *recipestest.Server) {
				path, link := srv.Root(t)+"/line", srv.Link(t)
				acls := protocol.WithACLFor(func(node string) []zk.ACL {
					if strings.HasPrefix(node, path+"/") {
						return zk.WorldACL(test.perms)
					}
					return nil
				})
				g := hold(t, link.Client(t, acls), path)
				require.NoError(t, g.SetData(lasting(t), []byte("old"))) // so that the version is not 0
				time.Sleep(time.Second)                                  // until the node is watched

				// The grant may read first, as its watch tells it of the change.
				link.Fail(test.refuse, path+"/"+g.Node(), int32(zkwire.CodeNotEmpty), 2)
				link.LoseReply(recipestest.OpSetData, 1)
				require.ErrorIs(t, g.SetData(lasting(t), []byte("new")), test.want)
				require.NoError(t, g.Err())
				release(t, g)
			})
		})
	}
}
