package line_test

import (
	"fmt"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol/line"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// keepData creates the line's node, with data, and enters the line a few times. The data stay.
func keepData(t *testing.T, l *line.Line, op *recipe.Session, path string, version int32) {
	t.Helper()
	ctx, data := suite.Lasting(t), []byte("owner: team-a")
	require.NoError(t, op.Create(ctx, path, data, 0))
	for v := range version {
		_, err := op.Set(ctx, path, data, v)
		require.NoError(t, err)
	}
	for range 4 {
		release(t, take(t, l))
	}
	kept, _, err := op.Get(ctx, path)
	require.NoError(t, err)
	require.Equal(t, data, kept)
}

// What a line knows of its node is a version, which begins anew when the node is made again, with
// data this time. The line may have made the node, or found it, and may have seen that it is gone.
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
							release(t, take(t, l))
						}
						if _, stat, err := op.Get(t.Context(), path); err == nil {
							require.NoError(t, op.Delete(t.Context(), path, -1))
							if seen {
								version = stat.Version
							}
						}
						if seen {
							all, err := l.Contenders(t.Context())
							require.NoError(t, err)
							require.Empty(t, all)
						}
						keepData(t, l, op, path, version)
					})
				})
			}
		}
	}
}

// A path that another client has made is fast from the third time on, if that may be: the release
// of the second one sets the version that the third one sets.
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
				_, err := op.SetACL(path, zk.WorldACL(c.perms), -1)
				require.NoError(t, err)
				for range 6 {
					release(t, take(t, l))
				}
				require.Equal(t, c.multis, link.Count(recipestest.OpMulti))
				require.Equal(t, c.lists, link.Count(recipestest.OpGetChildren))
				require.Empty(t, suite.Children(t, operator, path))

				// One that is fast, and may not be set any more, goes on without.
				_, err = op.SetACL(path, zk.WorldACL(zk.PermAll&^zk.PermWrite), -1)
				require.NoError(t, err)
				release(t, take(t, l))
				multis := link.Count(recipestest.OpMulti)
				for range 3 {
					release(t, take(t, l))
				}
				require.Equal(t, multis, link.Count(recipestest.OpMulti))
			})
		})
	}
}

// What was known of the node that is gone is not used for the one that takes its place.
func TestLineThatWasDeletedIsFastAtOnce(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link := srv.Root(t)+"/x", srv.Link(t)
		op, l := suite.Session(t, srv.Client(t)), lineAt(link.Client(t), path)
		for range 3 {
			release(t, take(t, l))
		}
		require.NoError(t, op.Delete(suite.Lasting(t), path, -1))
		multis, lists := link.Count(recipestest.OpMulti), link.Count(recipestest.OpGetChildren)
		release(t, take(t, l)) // finds out, makes the path, and is fast
		require.Equal(t, multis+2, link.Count(recipestest.OpMulti))
		require.Equal(t, lists, link.Count(recipestest.OpGetChildren))
	})
}

// The version of a line's node that a client has created is forgotten if it then creates nothing
// there: another client's node may take that one's place.
func TestDataOfALineWhoseFirstContenderWasRefusedAreKept(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		const badArguments = -8
		root, link, op := srv.Root(t), srv.Link(t), suite.Session(t, srv.Client(t))
		path := root + "/x"
		suite.Keep(t, srv.Client(t), root)
		l := lineAt(link.Client(t), path)
		link.Fail(recipestest.OpMulti, "", badArguments, 1)
		_, err := l.Enter(t.Context(), request)
		require.ErrorIs(t, err, zk.ErrBadArguments)
		require.NoError(t, op.Delete(t.Context(), path, -1))
		keepData(t, l, op, path, 0)
	})
}

// The release of the second holder would set the data of the path to none, as they were when the
// line was listed.
func TestForeignDataThatIsSetDuringAHoldStays(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, op := srv.Root(t)+"/line", suite.Session(t, srv.Client(t))
		suite.Keep(t, srv.Client(t), path)
		l := lineAt(srv.Client(t), path)
		release(t, take(t, l))
		g := take(t, l)
		_, err := op.Set(t.Context(), path, []byte("foreign"), 0)
		require.NoError(t, err)
		release(t, g)
		data, _, err := op.Get(t.Context(), path)
		require.NoError(t, err)
		require.Equal(t, "foreign", string(data))
	})
}
