package recipe_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol/line"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

func TestOwnerIsFollowedByAHyphen(t *testing.T) {
	o := recipe.Owner{Session: 1, Nonce: 2}
	for _, name := range []string{"", o.String(), o.String() + "x"} {
		_, _, ok := recipe.ParseOwner(name)
		require.False(t, ok, name)
	}
	parsed, rest, ok := recipe.ParseOwner(o.String() + "-lock-")
	require.True(t, ok)
	require.Equal(t, o, parsed)
	require.Equal(t, "lock-", rest)
}

func TestPrefixOfAnOwnNodeHasNoSlash(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		s := suite.Session(t, srv.Client(t))
		_, err := s.CreateOwn(t.Context(), recipe.OwnNode{Dir: "/dir", Prefix: "a/b-"})
		require.ErrorIs(t, err, zk.ErrBadArguments)
		stat := suite.Got(s.Exists(t.Context(), "/dir"))(t)
		require.Nil(t, stat, "nothing was created")
	})
}

// A directory that is gone as soon as it was made must not keep the servers busy.
func TestCreateOwnIsPacedWhileItsDirectoryIsMissing(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		s := suite.Session(t, srv.Client(t, impatient(1)))
		dir, attempts := srv.Root(t)+"/dir", 0
		began := time.Now()
		own, err := s.CreateOwn(t.Context(), recipe.OwnNode{
			Dir: dir, Prefix: s.NewOwner().String() + "-",
			Missing: func(ctx context.Context, s *recipe.Session) error {
				if attempts++; time.Since(began) < time.Minute {
					return nil
				}
				_, err := s.EnsurePath(ctx, dir)
				return err
			},
		})

		require.NoError(t, err)
		require.NoError(t, own.Withdraw(t.Context()))
		require.Less(t, attempts, 200)
	})
}

// TestSecondNodeOfOursIsDeleted creates another node of the same owner, as a retry would at a
// server that hides the first node.
func TestSecondNodeOfOursIsDeleted(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		root, link, other := srv.Root(t), srv.Link(t), srv.Client(t)
		c := link.Client(t)
		holder := suite.Hold(t, other, root)
		link.LoseReply(recipestest.OpCreate, 1)
		next := suite.Later(func() *recipe.Grant {
			g, err := suite.LineAt(c, root).Enter(context.Background(), suite.Request)
			if err != nil {
				t.Error(err)
			}

			return g
		})

		synctest.Wait()
		s := suite.Session(t, c)
		standing := suite.Must(t, suite.LineAt(c, root).Contenders)
		require.Len(t, standing, 2)
		ours, ok := line.ParseName(standing[1].Node, "lock-")
		require.True(t, ok)
		suite.Got(create(s, root+"/"+ours.Owner.String()+"-"+ours.Kind, zk.FlagEphemeralSequential)(s.Conn()))(t)
		require.NoError(t, holder.Release(suite.Lasting(t)))
		g := suite.Wait(t, next)
		require.Equal(t, ours.Node, g.Node())
		synctest.Wait()
		require.Equal(t, []string{g.Node()}, suite.Children(t, other, root))
		suite.Release(t, g)
	})
}
