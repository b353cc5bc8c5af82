package protocol_test

import (
	"context"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// Whichever way deletes the old node of a grant that is being replaced knows nothing of the new one.
func TestReleaseInAnotherWayWhileReplacedLeavesNothingBehind(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		c, path := srv.Client(t), srv.Root(t)+"/x"
		s, r := session(t, c), protocol.NewRecipe(c, "test", path)
		own, err := s.CreateOwn(lasting(t), protocol.OwnNode{Dir: path, Prefix: s.NewOwner().String() + "-"})
		require.NoError(t, err)
		old, next := path+"/"+own.Name(), path+"/next"
		stat, err := s.Exists(lasting(t), old)
		require.NoError(t, err)
		remove := func(ctx context.Context) error { return s.Delete(ctx, old, -1) }
		g, err := r.NewGrant(lasting(t), s, old, stat.Czxid, remove)
		require.NoError(t, err)
		swapped, released := make(chan struct{}), make(chan struct{})
		replaced := later(func() error {
			_, err := g.Replace(lasting(t), next, func(ctx context.Context) error {
				_, err := s.Multi(ctx,
					&zk.CreateRequest{Path: next, Flags: zk.FlagEphemeral},
					&zk.DeleteRequest{Path: old, Version: -1})
				close(swapped)
				<-released
				return err
			})
			return err
		})
		wait(t, swapped)

		begun, err := g.ReleaseWith(lasting(t), remove)
		close(released)

		require.False(t, begun)
		require.ErrorIs(t, err, protocol.ErrReleased)
		require.ErrorIs(t, wait(t, replaced), protocol.ErrReleased)
		names, _, err := s.Children(lasting(t), path)
		require.NoError(t, err)
		require.Empty(t, names)
	})
}
