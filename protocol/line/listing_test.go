package line

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// A client can be closed just before a contender lists the line.
func TestListingOfAClosedClientFails(t *testing.T) {
	recipestest.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		c := srv.Client(t)
		s, err := recipe.SessionOf(t.Context(), c)
		require.NoError(t, err)
		l := New(recipe.New(c, "test", srv.Root(t)), Locks...)
		require.NoError(t, c.Close())
		_, err = l.list(t.Context(), s, l.shared(s))
		require.ErrorIs(t, err, protocol.ErrClosed)
	})
}
