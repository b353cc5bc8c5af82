package line_test

import (
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol/line"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// Contenders of a kind that the line does not have would not see each other.
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
				_, _, err = l.Claim(suite.Lasting(t), suite.Session(t, c), &line.Request{Kind: kind})
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

// The name of a waiter's node is no proof: another client may have used it.
func TestNodeOfAnotherSessionIsNotGranted(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, c, op := srv.Root(t)+"/line", srv.Client(t), srv.Client(t)
		held, err := lineAt(op, path).Enter(suite.Lasting(t), request)
		require.NoError(t, err)
		next := enter(suite.Lasting(t), lineAt(c, path), request)
		time.Sleep(time.Second) // it watches its own node by then
		pending(t, next)
		s := suite.Session(t, op)
		names, err := lineAt(op, path).Names(suite.Lasting(t), s)
		require.NoError(t, err)
		node := path + "/" + names[1].Node
		_, err = s.Multi(suite.Lasting(t), &zk.DeleteRequest{Path: node, Version: -1},
			&zk.CreateRequest{Path: node, Flags: zk.FlagEphemeral},
			&zk.DeleteRequest{Path: path + "/" + held.Node(), Version: -1})
		require.NoError(t, err)

		g := suite.Wait(t, next)
		require.NotEqual(t, names[1].Node, g.Node())
		release(t, g)
	})
}
