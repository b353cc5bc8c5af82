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
		box := suite.Got(sandbox.Open(srv.ConnectString(), "sandbox"))(t)
		c := suite.Got(protocol.Connect(t.Context(), box.Servers))(t)
		defer c.Close()
		suite.Got(queue.New(c, "/deep/down/queue").Offer(t.Context(), []byte("left")))(t)
		suite.Got(lock.New(c, "/lock").Lock(t.Context()))(t)
		ended := suite.Got(box.Expire(t.Context(), c))(t)
		require.False(t, ended, "sessions of an ensemble are not ours to end")

		require.NoError(t, box.Close())
		for _, node := range suite.Children(t, srv.Client(t), "/") {
			require.NotContains(t, node, "sandbox-")
		}
	})
}
