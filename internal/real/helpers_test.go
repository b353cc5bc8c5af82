package real_test

import (
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/recipestest/ensemble"
)

func TestMain(m *testing.M) { suite.Main(m) }

// connect is srv.Client for tests that need another connect string.
func connect(t testing.TB, connectString string, opts ...protocol.ConnectOption) *protocol.Client {
	t.Helper()
	c := suite.Got(protocol.Connect(suite.Lasting(t), connectString, opts...))(t)
	t.Cleanup(func() { c.Close() })
	return c
}

// without returns all members but one, and how to connect to them.
func without(cluster *ensemble.Cluster, one *ensemble.Member) (others []*ensemble.Member, connectString string) {
	var addresses []string
	for _, m := range cluster.Members() {
		if m != one {
			others, addresses = append(others, m), append(addresses, m.ConnectString())
		}
	}
	return others, strings.Join(addresses, ",")
}

// connectAcross connects a client that reaches the first member alone, over a link. It reaches the
// second when the second link is healed.
func connectAcross(t *testing.T, cluster *ensemble.Cluster, one, two *ensemble.Member, opts ...protocol.ConnectOption) (
	c *protocol.Client, first, second *recipestest.Link) {
	t.Helper()
	first = recipestest.Attach(t, one.ConnectString()).Link(t)
	second = recipestest.Attach(t, two.ConnectString()).Link(t)
	second.Cut()
	links := map[string]*recipestest.Link{one.ConnectString(): first, two.ConnectString(): second}
	dial := func(network, address string, timeout time.Duration) (net.Conn, error) {
		if link := links[address]; link != nil {
			return link.Dial(network, address, timeout)
		}
		return nil, errors.New("out of reach")
	}
	return connect(t, cluster.ConnectString(), append(opts, protocol.WithDialer(dial))...), first, second
}
