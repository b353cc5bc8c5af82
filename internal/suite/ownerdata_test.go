package suite_test

import (
	"context"
	"maps"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/doublebarrier"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// ownData has a contender of each recipe hold something in turn, and returns the data of its node.
func ownData(t *testing.T, c *protocol.Client, path string) map[string]string {
	t.Helper()
	data := make(map[string]string)
	entered := func(ctx context.Context, c *protocol.Client, path string) (release, error) {
		return hold((*doublebarrier.Entry).Leave)(doublebarrier.New(c, path, 1).Enter(ctx))
	}
	contenders := maps.Clone(acquire)
	contenders["doublebarrier"] = entered
	s := suite.Session(t, c)
	for name, acquire := range contenders {
		if name == "term" || strings.HasPrefix(name, "WriteLock") || name == "LeaderLatch" {
			continue // its data is the user's, or another library's
		}
		give, err := acquire(suite.Lasting(t), c, path+"/"+name)
		require.NoError(t, err, name)
		dir := path + "/" + name
		if name == "doublebarrier" {
			dir += "/process"
		}
		for _, child := range suite.Children(t, c, dir) {
			if node, stat := suite.Get(t, c, dir+"/"+child); stat.EphemeralOwner == s.ID() {
				data[name] = string(node)
			}
		}
		require.Contains(t, data, name)
		require.NoError(t, give(suite.Lasting(t)))
	}
	return data
}

func TestContendersSayWhereTheyRun(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		c := srv.Client(t)
		host := suite.Got(os.Hostname())(t)
		for name, data := range ownData(t, c, srv.Root(t)) {
			p, ok := protocol.ParseProcess([]byte(data))
			require.True(t, ok, "%s: %q", name, data)
			require.Equal(t, host[:min(64, len(host))], p.Host, name)
			require.Equal(t, os.Getpid(), p.PID, name)
			require.NotEmpty(t, p.Program, name)
		}
		for _, given := range []string{strings.Repeat("x", 1024), ""} {
			for name, data := range ownData(t, c.With(protocol.WithOwnerData([]byte(given))), srv.Root(t)) {
				require.Equal(t, given, data, name)
			}
		}
	})
}

func TestDataThatIsGivenReplacesTheOwnerData(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		for want, option := range map[string]lock.Option{"mine": lock.WithData([]byte("mine")), "": lock.WithData([]byte{})} {
			m := lock.New(srv.Client(t), srv.Root(t), option)
			require.NoError(t, m.Do(t.Context(), func(ctx context.Context, _ *lock.Lease) error {
				nodes := suite.Got(m.Contenders(ctx))(t)
				require.Equal(t, want, string(nodes[0].Data))
				return nil
			}))
		}
	})
}
