package protocol_test

import (
	"context"
	"errors"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// A transaction that deletes a node is refused, for a reason of its own, and the session is lost
// before the node can be deleted alone. The caller hears of the loss.
func TestRefusedDeletionOfALostSessionIsALoss(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link := srv.Link(t)
		c := link.Client(t)
		s, node := session(t, c), srv.Root(t)
		require.NoError(t, s.Create(lasting(t), node, nil, zk.FlagEphemeral))

		refused := errors.New("refused")
		heard := make(chan error, 1)
		s.Go(func(life context.Context, s *recipe.Session) {
			heard <- s.DeleteWith(life, node, func(*zk.Conn) error {
				srv.ExpireSession(s.ID())
				link.Cut()
				link.Heal()
				<-s.Done()
				return refused
			})
		})
		err := <-heard
		require.ErrorIs(t, err, protocol.ErrLost)
		require.NotErrorIs(t, err, refused)
	})
}
