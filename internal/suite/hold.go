package suite

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/line"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// LineAt returns a line of locks of the simplest kind, to have something that can be held.
func LineAt(c *protocol.Client, path string) *line.Line {
	return line.New(recipe.New(c, "test", path), line.Kind{Name: "lock-", Exclusive: true})
}

// Request asks for a lock of such a line.
var Request = line.Request{Kind: "lock-", Blockers: line.Exclusive}

// Hold enters the line at path, which must be free.
func Hold(t testing.TB, c *protocol.Client, path string) *recipe.Grant {
	t.Helper()
	g, err := LineAt(c, path).Enter(Lasting(t), Request)
	require.NoError(t, err)
	return g
}

// Release gives g back, which must have been granted.
func Release(t testing.TB, g *recipe.Grant) {
	t.Helper()
	require.NotNil(t, g)
	require.NoError(t, g.Release(Lasting(t)))
}
