package recipe_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/internal/zkwire"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// A context derived in the work can end while the caller waits on, and so can the session.
func TestAbandonedAlsoTellsOfTheEndOfTheSession(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		s := suite.Session(t, srv.Client(t))
		_, err := recipe.Detach(t.Context(), s, func(ctx context.Context, s *recipe.Session) (struct{}, error) {
			assert.NoError(t, s.Abandoned(), "the caller waits on")

			srv.ExpireSession(s.ID())
			<-s.Done()
			assert.ErrorIs(t, s.Abandoned(), protocol.ErrLost)
			return struct{}{}, nil
		}, nil)
		require.NoError(t, err)
	})
}

// Work of a session has no caller that could give up, whatever contexts it makes from its own.
func TestWorkOfASessionOutlivesTheBackOff(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link, node := srv.Link(t), srv.Root(t)+"/node"
		dialer, deletes := suite.Breaking(link, recipestest.OpDelete)
		s := suite.Session(t, link.Client(t, dialer, impatient(2)))
		for _, derived := range []bool{false, true} {
			suite.Ensure(t, s, node)
			deletes.Store(5)
			done := make(chan error, 1)
			s.Go(func(life context.Context, s *recipe.Session) {
				if derived {
					life = context.WithValue(life, t, nil)
				}
				done <- s.Delete(life, node, -1)
			})
			require.NoError(t, suite.Wait(t, done))
			require.Zero(t, deletes.Load())
		}
	})
}

// A transaction that deletes a node is refused, for a reason of its own, and the session is lost
// before the node can be deleted alone. The caller gets the loss.
func TestRefusedDeletionOfALostSessionIsALoss(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link := srv.Link(t)
		c := link.Client(t)
		s, node := suite.Session(t, c), srv.Root(t)
		require.NoError(t, s.Create(suite.Lasting(t), node, nil, zk.FlagEphemeral))

		refused := errors.New("refused")
		heard := make(chan error, 1)
		s.Go(func(life context.Context, s *recipe.Session) {
			heard <- s.DeleteWith(life, node, func(*zk.Conn) error {
				srv.ExpireSession(s.ID())
				suite.Blip(link)
				<-s.Done()
				return refused
			})
		})

		err := suite.Wait(t, heard)
		require.ErrorIs(t, err, protocol.ErrLost)
		require.NotErrorIs(t, err, refused)
	})
}

// Work that outlives its caller ends with the session, and so does the grant that it releases.
func TestReleaseInDetachedWorkSaysThatTheSessionIsLost(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link := srv.Root(t)+"/line", srv.Link(t)
		c := link.Client(t)
		g, s := suite.Hold(t, c, path), suite.Session(t, c)
		link.Stall()

		released := suite.Later(func() error {
			_, err := recipe.Detach(t.Context(), s, func(ctx context.Context, s *recipe.Session) (struct{}, error) {
				return struct{}{}, g.Release(ctx)
			}, nil)
			return err
		})

		require.ErrorIs(t, suite.Wait(t, released), protocol.ErrLost)
		link.Heal()
	})
}

// No server answers any more, and the caller of the work need not wait for that to end. It finds
// out whether the work was perhaps done.
func TestSilenceLetsTheCallerOfWorkGo(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		for name, sent := range map[string]bool{"/sent": true, "/unsent": false} {
			link := srv.Link(t)
			s := suite.Session(t, link.Client(t))
			if link.StallReplies(); sent {
				time.AfterFunc(time.Second, link.Cut)
			} else {
				link.Cut()
				synctest.Wait()
			}
			_, err := recipe.Detach(t.Context(), s, func(ctx context.Context, s *recipe.Session) (struct{}, error) {
				return struct{}{}, s.Create(ctx, name, nil, 0)
			}, nil)
			require.ErrorIs(t, err, zk.ErrNoServer)
			require.Equal(t, sent, errors.Is(err, protocol.ErrUncertain), "%v", err)
			require.Equal(t, sent, suite.Exists(t, srv.Client(t), name))
			link.Heal()
		}
	})
}

// Another client deletes the node after a refusal, and another node gets its name.
func TestRefusedDeletionSparesALaterNode(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link, node, other := srv.Link(t), srv.Root(t)+"/node", suite.Session(t, srv.Client(t))
		s := suite.Session(t, link.Client(t))
		suite.Ensure(t, other, node)
		stat := suite.Got(s.Exists(suite.Lasting(t), node))(t)
		asked := link.Count(recipestest.OpExists)
		link.Fail(recipestest.OpDelete, node, int32(zkwire.CodeNoAuth), 1)
		done := make(chan error, 1)
		s.Go(func(life context.Context, s *recipe.Session) { done <- s.DeleteOnce(life, node, stat.Czxid) })
		synctest.Wait()
		require.Equal(t, asked, link.Count(recipestest.OpExists), "the first attempt needs no look")
		require.NoError(t, other.Delete(suite.Lasting(t), node, -1))
		suite.Ensure(t, other, node)
		require.ErrorIs(t, suite.Wait(t, done), zk.ErrNoNode)
		require.True(t, suite.Exists(t, srv.Client(t), node))
	})
}
