package line_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/line"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// keepData creates the line's node with data, enters the line a few times, and requires that the
// data is still there.
func keepData(t *testing.T, l *line.Line, op *recipe.Session, path string, version int32) {
	t.Helper()
	ctx, data := suite.Lasting(t), []byte("owner: team-a")
	require.NoError(t, op.Create(ctx, path, data, 0))

	for v := range version {
		suite.Got(op.Set(ctx, path, data, v))(t)
	}

	for range 4 {
		suite.Release(t, take(t, l))
	}
	kept, _, err := op.Get(ctx, path)
	require.NoError(t, err)
	require.Equal(t, data, kept)
}

// A line remembers its node's version. Versions begin anew when the node is created again (with
// data, this time). The line has created or found the first node, and may have seen that it was
// gone.
func TestDataOfALineThatWasMadeAgainAreKept(t *testing.T) {
	for _, found := range []bool{false, true} {
		for _, seen := range []bool{false, true} {
			for before := range 5 {
				t.Run(fmt.Sprint(found, seen, before), func(t *testing.T) {
					suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
						root, op := srv.Root(t), suite.Session(t, srv.Client(t))
						path := root + "/x"
						suite.Keep(t, srv.Client(t), root)
						l, version := lineAt(srv.Client(t), path), int32(0)
						if found {
							suite.Keep(t, srv.Client(t), path)
						}
						for range before {
							suite.Release(t, take(t, l))
						}
						if _, stat, err := op.Get(t.Context(), path); err == nil {
							require.NoError(t, op.Delete(t.Context(), path, -1))
							if seen {
								version = stat.Version
							}
						}
						if seen {
							all := suite.Got(l.Contenders(t.Context()))(t)
							require.Empty(t, all)
						}
						keepData(t, l, op, path, version)
					})
				})
			}
		}
	}
}

// At a path that another client has created, the third contender is fast: the release of the second
// sets the version that the third expects. (Without the permission to set it, no contender is
// fast.)
func TestLineThatOthersHaveMadeIsFastInTheEnd(t *testing.T) {
	for name, c := range map[string]struct {
		perms         int32
		multis, lists int // of six cycles
	}{
		"may be set":     {zk.PermAll, 1 + 4, 2},
		"may not be set": {zk.PermAll &^ zk.PermWrite, 1, 6},
	} {
		t.Run(name, func(t *testing.T) {
			suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
				path, link := srv.Root(t)+"/x", srv.Link(t)
				operator, l := srv.Client(t), lineAt(link.Client(t), path)
				suite.Keep(t, operator, path)
				op := suite.Session(t, operator).Conn()
				suite.Got(op.SetACL(path, zk.WorldACL(c.perms), -1))(t)
				for range 6 {
					suite.Release(t, take(t, l))
				}
				require.Equal(t, c.multis, link.Count(recipestest.OpMulti))
				require.Equal(t, c.lists, link.Count(recipestest.OpGetChildren))
				require.Empty(t, suite.Children(t, operator, path))

				// If the permission goes later, the line goes on without.
				suite.Got(op.SetACL(path, zk.WorldACL(zk.PermAll&^zk.PermWrite), -1))(t)
				suite.Release(t, take(t, l))
				multis := link.Count(recipestest.OpMulti)
				for range 3 {
					suite.Release(t, take(t, l))
				}
				require.Equal(t, multis, link.Count(recipestest.OpMulti))
			})
		})
	}
}

// A line forgets the data of a deleted node before another node takes its place.
func TestLineThatWasDeletedIsFastAtOnce(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link := srv.Root(t)+"/x", srv.Link(t)
		op, l := suite.Session(t, srv.Client(t)), lineAt(link.Client(t), path)
		for range 3 {
			suite.Release(t, take(t, l))
		}
		require.NoError(t, op.Delete(suite.Lasting(t), path, -1))
		multis, lists := link.Count(recipestest.OpMulti), link.Count(recipestest.OpGetChildren)
		suite.Release(t, take(t, l)) // finds out, makes the path, and is fast
		require.Equal(t, multis+2, link.Count(recipestest.OpMulti))
		require.Equal(t, lists, link.Count(recipestest.OpGetChildren))
	})
}

// A contender creates the line's node, but is refused. So the line forgets the node's version,
// because another client's node can take that node's place.
func TestDataOfALineWhoseFirstContenderWasRefusedAreKept(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		const badArguments = -8
		root, link, op := srv.Root(t), srv.Link(t), suite.Session(t, srv.Client(t))
		path := root + "/x"
		suite.Keep(t, srv.Client(t), root)
		l := lineAt(link.Client(t), path)
		link.Fail(recipestest.OpMulti, "", badArguments, 1)
		require.ErrorIs(t, suite.Err(l.Enter(t.Context(), request)), zk.ErrBadArguments)
		require.NoError(t, op.Delete(t.Context(), path, -1))
		keepData(t, l, op, path, 0)
	})
}

// The transaction has the line's path twice.
func TestContenderWhoseTransactionIsTooLargeIsNotRefused(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		c := srv.Client(t, protocol.WithRequestLimit(1024))
		l := lineAt(c, srv.Root(t)+"/"+strings.Repeat("x", 420))
		suite.Release(t, take(t, l))
		suite.Release(t, take(t, l))
	})
}

// The release of the second holder would set the data to nothing (the data in its listing).
func TestForeignDataThatIsSetDuringAHoldStays(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, operator := srv.Root(t)+"/line", srv.Client(t)
		suite.Keep(t, operator, path)
		l := lineAt(srv.Client(t), path)
		suite.Release(t, take(t, l))
		g := take(t, l)
		suite.Got(suite.Session(t, operator).Set(t.Context(), path, []byte("foreign"), 0))(t)
		suite.Release(t, g)
		data, _ := suite.Get(t, operator, path)
		require.Equal(t, "foreign", string(data))
	})
}
