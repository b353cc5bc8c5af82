package recipe_test

import (
	"testing"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

func TestMain(m *testing.M) {
	suite.Main(m)
}

func create(s *recipe.Session, path string, flags int32) func(*zk.Conn) (string, error) {
	return func(conn *zk.Conn) (string, error) {
		return conn.Create(s.Path(path), nil, flags, zk.WorldACL(zk.PermAll))
	}
}

func impatient(retries uint64) protocol.Option {
	return protocol.WithBackOff(func() backoff.BackOff {
		return backoff.WithMaxRetries(backoff.NewConstantBackOff(time.Millisecond), retries)
	})
}

// requireNoContenders waits until nothing stands in line at path.
func requireNoContenders(t testing.TB, c *protocol.Client, path string) {
	t.Helper()
	suite.Soon(t, func() bool {
		line := suite.Must(t, suite.LineAt(c, path).Contenders)
		return len(line) == 0
	}, "a node is left")
}
