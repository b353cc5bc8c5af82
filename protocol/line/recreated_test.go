package line_test

import (
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// On a path that is created again the versions of its data begin again, too.
func TestForeignDataOnAPathThatWasCreatedAgainStays(t *testing.T) {
	suite.EmbeddedAndReal(t, func(t *testing.T, srv *recipestest.Server) {
		root, c := srv.Root(t), srv.Client(t)
		path, operator := root+"/line", suite.Session(t, srv.Client(t))
		_, err := operator.Conn().Create(root, nil, 0, zk.WorldACL(zk.PermAll)) // no container, which might go when it is empty
		require.NoError(t, err)
		_, err = operator.EnsurePath(suite.Lasting(t), path)
		require.NoError(t, err)
		l := lineAt(c, path)
		enter := func() {
			g, err := l.Enter(suite.Lasting(t), request)
			require.NoError(t, err)
			require.NoError(t, g.Release(suite.Lasting(t)))
		}
		enter()
		enter() // the line has read now that its node has no data, at version 0
		node := operator.Path(path)
		require.NoError(t, operator.Conn().Delete(node, -1))
		_, err = operator.Conn().Create(node, []byte("foreign"), 0, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)

		enter()

		data, _, err := operator.Conn().Get(node)
		require.NoError(t, err)
		require.Equal(t, "foreign", string(data))
	})
}

// The release of the second holder would set the data of the path to none, as they were when the
// line was listed.
func TestForeignDataThatIsSetDuringAHoldStays(t *testing.T) {
	suite.EmbeddedAndReal(t, func(t *testing.T, srv *recipestest.Server) {
		root, c := srv.Root(t), srv.Client(t)
		path, operator := root+"/line", suite.Session(t, srv.Client(t))
		for _, node := range []string{root, path} {
			_, err := operator.Conn().Create(node, nil, 0, zk.WorldACL(zk.PermAll))
			require.NoError(t, err)
		}
		l := lineAt(c, path)
		g, err := l.Enter(suite.Lasting(t), request)
		require.NoError(t, err)
		release(t, g)

		g, err = l.Enter(suite.Lasting(t), request)
		require.NoError(t, err)
		_, err = operator.Set(suite.Lasting(t), path, []byte("foreign"), 0)
		require.NoError(t, err)
		release(t, g)
		data, _, err := operator.Get(suite.Lasting(t), path)
		require.NoError(t, err)
		require.Equal(t, "foreign", string(data))
	})
}
