package protocol_test

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	kernel "github.com/zkrecipes/zkrecipes/internal/session"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

// TestGrantAfterASuspensionIsPaced has a session whose last contact is almost a timeout ago, as after
// a suspension. It takes a while until what the servers say now renews trust.
func TestGrantAfterASuspensionIsPaced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv, err := embedded.Start(embedded.Config{InMemory: true, TickTime: 500 * time.Millisecond})
		require.NoError(t, err)
		defer srv.Close()
		c, err := protocol.Connect(t.Context(), "127.0.0.1:1", protocol.WithSessionTimeout(10*time.Second), protocol.WithDialer(
			func(_, _ string, d time.Duration) (net.Conn, error) { return srv.Dial("tcp", srv.ConnectString(), d) }))
		require.NoError(t, err)
		defer c.Close()
		s, err := recipe.SessionOf(t.Context(), c)
		require.NoError(t, err)
		require.NoError(t, s.Create(t.Context(), "/node", nil, zk.FlagEphemeral))
		stat, err := s.Exists(t.Context(), "/node")
		require.NoError(t, err)

		kernel.Open(s).Suspend(s.Timeout()*99/100, s.Timeout())
		began := time.Now()
		_, err = recipe.New(c, "test", "/x").NewGrant(t.Context(), s, "/node", stat.Czxid,
			func(context.Context, *recipe.Session) error { return nil })
		require.NoError(t, err)
		after, err := s.Set(t.Context(), "/node", nil, -1)
		require.NoError(t, err)
		require.Positive(t, time.Since(began))
		require.Less(t, after.Mzxid-stat.Czxid, int64(20))
	})
}
