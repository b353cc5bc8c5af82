package recipestest_test

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

func TestClientsFindServersByTheirNames(t *testing.T) {
	t.Parallel()
	recipestest.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		names, link := srv.Names(), srv.Link(t)
		names.Resolve("zk-0", "10.0.0.1")
		names.Resolve("zk-1", "10.0.0.2", "10.0.0.3")
		names.Give("10.0.0.2", link.Dial)
		c := names.Client(t, "zk-0:2181,zk-1:2181",
			protocol.WithSessionTimeout(10*time.Second), protocol.WithDialer(names.Dial))
		require.Positive(t, names.Dials()["10.0.0.2"])
		require.Positive(t, names.Lookups())

		// The server moves, and its name with it. Its old address belongs to no server.
		names.Give("10.0.0.2", nil)
		names.Give("10.0.0.4", srv.Dial)
		names.Resolve("zk-1", "10.0.0.4")
		require.Zero(t, names.Dials()["10.0.0.4"])
		link.Cut()
		time.Sleep(time.Minute)
		session := suite.Got(recipe.SessionOf(t.Context(), c))(t)
		require.NoError(t, session.Sync(t.Context(), "/"))
		require.Positive(t, names.Dials()["10.0.0.4"])

		// Without a name there is no server.
		names.Resolve("zk-0")
		_, err := names.LookupHost(t.Context(), "zk-0")
		var unknown *net.DNSError
		require.ErrorAs(t, err, &unknown)
		require.True(t, unknown.IsNotFound)
		before := names.Lookups()
		addresses := suite.Got(names.LookupHost(t.Context(), "zk-1"))(t)
		require.Equal(t, []string{"10.0.0.4"}, addresses)
		require.Equal(t, before+1, names.Lookups())

		// Dialing an address that belongs to no server takes the whole timeout.
		began := time.Now()
		_, err = names.Dial("tcp", "10.0.0.9:2181", 3*time.Second)
		var timeout net.Error
		require.ErrorAs(t, err, &timeout)
		require.True(t, timeout.Timeout())
		require.Equal(t, 3*time.Second, time.Since(began))
	})
}
