package recipe_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

func TestValidatePath(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/", "/a", "/a/b", "/a b", "/.a", "/..a", "/a.", "/…", "/é", "/\u00a0", "/\uffee", "/%2F", "/a:b,c"} {
		require.NoError(t, recipe.ValidatePath(path), path)
	}
	for _, path := range []string{
		"", "a", "a/b", "//", "/a/", "/a//b", "//a", "/.", "/..", "/a/.", "/a/..", "/./a", "/a/../b", "/a\x00", "/\x1f", "/\x7f",
		"/\u0085", "/\u009f", "/\ue000", "/\uf8ff", "/\ufff0", "/\ufffd", "/\uffff", "/\xff", "/a/\xc3", "/\U0001f600", "/a/\U0010ffff",
	} {
		require.ErrorIs(t, recipe.ValidatePath(path), zk.ErrInvalidPath, "%q", path)
	}
}

// drawPath makes paths of all kinds of characters, many of them valid.
func drawPath(t *rapid.T) string {
	part := rapid.OneOf(
		rapid.StringOfN(rapid.RuneFrom([]rune("abé.…~ %\\:*")), 0, 4, -1),
		rapid.StringOfN(rapid.OneOf(rapid.Rune(), rapid.RuneFrom([]rune{0, 0x1f, 0x20, 0x7e, 0x7f, 0x9f, 0xa0, 0xd7ff, 0xe000, 0xf8ff, 0xf900,
			0xffef, 0xfff0, 0xfffd, 0xffff, 0x10000, 0x1f600})), 1, 3, -1),
		rapid.SampledFrom([]string{".", "..", "...", "", "zookeeper", "\xff"}),
	)
	return strings.Join(rapid.SliceOfN(part, 1, 3).Draw(t, "parts"), "/")
}

func TestPathsThatAreValidAreAcceptedByTheServer(t *testing.T) {
	suite.InRealTime(t, func(t *testing.T, srv *recipestest.Server) { // rapid.Check asks for t.Deadline
		s, root := suite.Session(t, srv.Client(t)), srv.Root(t)
		_, err := create(s, root, 0)(s.Conn()) // a container would be gone soon
		require.NoError(t, err)
		rapid.Check(t, func(t *rapid.T) {
			path := root + "/" + drawPath(t)
			if recipe.ValidatePath(path) != nil {
				return
			}

			_, err := s.Conn().Create(s.Path(path), nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
			if err == nil {
				err = s.Conn().Delete(s.Path(path), -1)
			}
			if err != nil && !errors.Is(err, zk.ErrNoNode) {
				t.Fatalf("%q: %v", path, err)
			}
		})
	})
}
