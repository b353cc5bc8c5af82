package ensemble_test

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/recipestest/ensemble"
)

// dial connects a client without any part of this module, and waits until it has a session. It uses
// the first dialer, if there is one.
func dial(t *testing.T, connectString string, timeout time.Duration, dialer ...zk.Dialer) *zk.Conn {
	t.Helper()
	dialer = append(dialer, net.DialTimeout)
	conn, _, err := zk.Connect(strings.Split(connectString, ","), timeout, zk.WithLogger(silent{}), zk.WithDialer(dialer[0]))
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	suite.Soon(t, func() bool { return conn.State() == zk.StateHasSession }, "a session at "+connectString)
	return conn
}

type silent struct{}

func (silent) Printf(string, ...any) {}

func TestRealServesEveryKindOfNode(t *testing.T) {
	server := ensemble.Real(t)
	suite.Needs(t, server, suite.Containers)
	suite.Needs(t, server, suite.TTL)
	conn := dial(t, server.ConnectString(), 10*time.Second)
	acl := zk.WorldACL(zk.PermAll)

	suite.Got(conn.Create("/served", []byte("data"), 0, acl))(t)
	t.Cleanup(func() { _ = conn.Delete("/served", -1) })
	require.Equal(t, "data", string(suite.ReadAt(t, conn.Get, "/served")))

	_, err := conn.CreateTTL("/served/for-a-while", nil, zk.FlagTTL, acl, 100*time.Millisecond)
	require.NoError(t, err, "TTL nodes need extendedTypesEnabled")

	suite.Got(conn.CreateContainer("/served/container", nil, zk.FlagContainer, acl))(t)
	suite.Got(conn.Create("/served/container/child", nil, zk.FlagEphemeral, acl))(t)
	require.NoError(t, conn.Delete("/served/container/child", -1))
	require.Eventually(t, func() bool {
		children, _, err := conn.Children("/served")
		return err == nil && len(children) == 0
	}, 30*time.Second, 50*time.Millisecond, "the server removes containers and TTL nodes within seconds")
}

func TestRealIsSharedByTheTestsOfAProcess(t *testing.T) {
	require.Equal(t, ensemble.Real(t).ConnectString(), ensemble.Real(t).ConnectString())
}
