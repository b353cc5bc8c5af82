package sandbox_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/examples/internal/sandbox"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/queue"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

func TestMain(m *testing.M) { suite.Main(m) }

// What lasts, what a session holds, and what is left of a dead process are all removed.
func TestClosedSandboxLeavesNothingOnAnEnsemble(t *testing.T) {
	suite.InRealTime(t, func(t *testing.T, srv *recipestest.Server) {
		box, err := sandbox.Open(srv.ConnectString(), "sandbox")
		require.NoError(t, err)
		c, err := protocol.Connect(t.Context(), box.Servers)
		require.NoError(t, err)
		defer c.Close()
		_, err = queue.New(c, "/deep/down/queue").Offer(t.Context(), []byte("left"))
		require.NoError(t, err)
		_, err = lock.New(c, "/lock").Lock(t.Context())
		require.NoError(t, err)
		ended, err := box.Expire(t.Context(), c)
		require.NoError(t, err)
		require.False(t, ended, "sessions of an ensemble are not ours to end")

		require.NoError(t, box.Close())
		for _, node := range suite.Children(t, srv.Client(t), "/") {
			require.NotContains(t, node, "sandbox-")
		}
	})
}
