package protocol_test

import (
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/protocol/recipe"
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
