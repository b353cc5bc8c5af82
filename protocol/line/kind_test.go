package line_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol/line"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// Its contenders would not see each other.
func TestRequestOfAKindThatTheLineDoesNotHaveIsRefused(t *testing.T) {
	suite.EmbeddedAndReal(t, func(t *testing.T, srv *recipestest.Server) {
		for _, kind := range []string{"", "lock", "read-"} {
			path := srv.Root(t) + "/kinds"
			c := srv.Client(t)
			l := lineAt(c, path)
			for range 2 {
				_, err := l.Enter(suite.Lasting(t), line.Request{Kind: kind})
				require.ErrorContains(t, err, "kind", kind)
				_, err = l.Enter(suite.Lasting(t), line.Request{Kind: kind, Try: true})
				require.ErrorContains(t, err, "kind", kind)
				_, _, err = l.Claim(suite.Lasting(t), suite.Session(t, c), line.Request{Kind: kind})
				require.ErrorContains(t, err, "kind", kind)
			}
			names, err := l.Names(suite.Lasting(t), suite.Session(t, c))
			require.NoError(t, err)
			require.Empty(t, names)
		}
	})
}

// What is not a contender's name is refused without a server.
func TestBreakRefusesANameWithoutAServer(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link := srv.Root(t)+"/line", srv.Link(t)
		c := link.Client(t)
		s := suite.Session(t, c)
		link.Cut()
		srv.ExpireSession(s.ID())
		suite.Wait(t, s.Done())

		err := lineAt(c, path).Break(suite.Lasting(t), "no-name")
		link.Heal()

		require.ErrorContains(t, err, "not a contender's name")
	})
}
