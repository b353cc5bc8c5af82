package embedded_test

import (
	"cmp"
	"net"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/internal/zkwire"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

func TestMain(m *testing.M) { suite.Main(m) }

// waitLimit bounds waits that end at once unless the test fails.
const waitLimit = 2 * time.Minute

// open is the access control list that grants everything to every client.
var open = zk.WorldACL(zk.PermAll)

type silent struct{}

func (silent) Printf(string, ...any) {}

// start starts a server that is closed when the test ends.
func start(t testing.TB, cfg embedded.Config) *embedded.Server {
	t.Helper()
	s := suite.Got(embedded.Start(cfg))(t)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// An endpoint is a server or a follower.
type endpoint interface {
	Dial(network, address string, timeout time.Duration) (net.Conn, error)
}

// dial connects go-zookeeper to an endpoint, in memory, and waits for its session.
func dial(t testing.TB, s endpoint) *zk.Conn {
	t.Helper()
	c, events, err := zk.Connect([]string{inMemory}, 40*time.Second,
		zk.WithDialer(s.Dial), zk.WithLogger(silent{}))
	require.NoError(t, err)
	t.Cleanup(c.Close)
	for suite.Wait(t, events).State != zk.StateHasSession {
	}
	return c
}

// connect opens a session with a wireClient. Unless h has a timeout the session is a long one, so
// that no test depends on its own speed.
func connect(t testing.TB, s endpoint, h hello) *wireClient {
	t.Helper()
	h.timeout = cmp.Or(h.timeout, 40_000)
	w := suite.Got(handshake(openRaw(t, s), h))(t)
	return w
}

// inMemory is the address that servers without a listener report.
const inMemory = "127.0.0.1:2181"

// openRaw opens a connection, over TCP if the server listens, and sends nothing.
func openRaw(t testing.TB, to endpoint) net.Conn {
	t.Helper()
	dial, address := to.Dial, inMemory
	if s, ok := to.(*embedded.Server); ok && s.ConnectString() != inMemory {
		dial, address = net.DialTimeout, s.ConnectString()
	}
	nc := suite.Got(dial("tcp", address, waitLimit))(t)
	t.Cleanup(func() { nc.Close() })
	require.NoError(t, nc.SetDeadline(time.Now().Add(waitLimit)))
	return nc
}

// must is call for tests that require an answer, of whatever code.
func (w *wireClient) must(t testing.TB, op zkwire.Op, body []byte) *answer {
	t.Helper()
	a := suite.Got(w.call(op, body))(t)
	return a
}

// sync returns the events that the server has sent so far.
func (w *wireClient) sync(t testing.TB) []string {
	t.Helper()
	w.must(t, zkwire.OpPing, nil)
	return w.takeEvents()
}
