package real_test

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/line"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

func TestMain(m *testing.M) {
	if config := os.Getenv(candidatesEnv); config != "" {
		os.Exit(runCandidates(config))
	}
	suite.Main(m)
}

// took is how long f takes.
func took(f func()) time.Duration {
	begin := time.Now()
	f()
	return time.Since(begin)
}

// connect is srv.Client for tests that need another connect string.
func connect(t testing.TB, connectString string, opts ...protocol.ConnectOption) *protocol.Client {
	t.Helper()
	c, err := protocol.Connect(suite.Lasting(t), connectString, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// inThree reports whether one of three attempts succeeds.
func inThree(attempt func() bool) bool {
	for range 3 {
		if attempt() {
			return true
		}
	}
	return false
}

func lineAt(c *protocol.Client, path string) *line.Line {
	return line.New(recipe.New(c, "test", path), line.Kind{Name: "lock-", Exclusive: true})
}

var request = line.Request{Kind: "lock-", Blockers: line.Exclusive}

func hold(t testing.TB, c *protocol.Client, path string) *recipe.Grant {
	t.Helper()
	g, err := lineAt(c, path).Enter(suite.Lasting(t), request)
	require.NoError(t, err)
	return g
}
