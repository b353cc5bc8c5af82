package embedded_test

import (
	"cmp"
	"net"
	"os"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

func TestMain(m *testing.M) {
	if config := os.Getenv(serverProcess); config != "" {
		runServer(config)
		return
	}
	suite.Main(m)
}

// waitLimit bounds waits that end at once unless the test fails.
const waitLimit = 2 * time.Minute

// open is the access control list that grants everything to every client.
var open = zk.WorldACL(zk.PermAll)

type silent struct{}

func (silent) Printf(string, ...any) {}

// start starts a server that is closed when the test ends.
func start(t testing.TB, cfg embedded.Config) *embedded.Server {
	t.Helper()
	s, err := embedded.Start(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// dial connects go-zookeeper to a server or a follower, in memory, and waits for its session.
func dial(t testing.TB, s interface {
	Dial(network, address string, timeout time.Duration) (net.Conn, error)
}) *zk.Conn {
	t.Helper()
	c, events, err := zk.Connect([]string{inMemory}, 40*time.Second,
		zk.WithDialer(s.Dial), zk.WithLogger(silent{}))
	require.NoError(t, err)
	t.Cleanup(c.Close)
	for receive(t, events).State != zk.StateHasSession {
	}
	return c
}

// connect opens a session with a wireClient. Unless h has a timeout the session is a long one, so
// that no test depends on its own speed.
func connect(t testing.TB, s *embedded.Server, h hello) *wireClient {
	t.Helper()
	h.timeout = cmp.Or(h.timeout, 40_000)
	w, err := handshake(openRaw(t, s), h)
	require.NoError(t, err)
	return w
}

// connectTo is connect to a follower, which may lag.
func connectTo(t testing.TB, f *embedded.Follower, h hello) *wireClient {
	t.Helper()
	nc, err := f.Dial("tcp", inMemory, waitLimit)
	require.NoError(t, err)
	t.Cleanup(func() { nc.Close() })
	h.timeout = cmp.Or(h.timeout, 40_000)
	w, err := handshake(nc, h)
	require.NoError(t, err)
	return w
}

// inMemory is the address that servers without a listener report.
const inMemory = "127.0.0.1:2181"

// openRaw opens a connection, over TCP if the server listens, and sends nothing.
func openRaw(t testing.TB, s *embedded.Server) net.Conn {
	t.Helper()
	dial := net.DialTimeout
	if s.ConnectString() == inMemory {
		dial = s.Dial
	}
	nc, err := dial("tcp", s.ConnectString(), waitLimit)
	require.NoError(t, err)
	t.Cleanup(func() { nc.Close() })
	require.NoError(t, nc.SetDeadline(time.Now().Add(waitLimit)))
	return nc
}

// must is call for tests that require an answer, of whatever code.
func (w *wireClient) must(t testing.TB, op int32, body []byte) *answer {
	t.Helper()
	a, err := w.call(op, body)
	require.NoError(t, err)
	return a
}

// sync returns the events that the server has sent so far.
func (w *wireClient) sync(t testing.TB) []string {
	t.Helper()
	w.must(t, opPing, nil)
	return w.takeEvents()
}

// receive returns the next value of a channel.
func receive[T any](t testing.TB, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(waitLimit):
		require.FailNow(t, "no value arrived")
		panic("unreachable")
	}
}

// The opcodes of client requests.
const (
	opCreate          = 1
	opDelete          = 2
	opExists          = 3
	opGetData         = 4
	opSetData         = 5
	opGetACL          = 6
	opSetACL          = 7
	opGetChildren     = 8
	opSync            = 9
	opPing            = 11
	opGetChildren2    = 12
	opCheck           = 13
	opMulti           = 14
	opCreate2         = 15
	opReconfig        = 16
	opCheckWatches    = 17
	opRemoveWatches   = 18
	opCreateContainer = 19
	opDeleteContainer = 20
	opCreateTTL       = 21
	opMultiRead       = 22
	opAuth            = 100
	opSetWatches      = 101
	opSASL            = 102
	opGetEphemerals   = 103
	opCountChildren   = 104
	opSetWatches2     = 105
	opAddWatch        = 106
	opWhoAmI          = 107
	opCloseSession    = -11
)

// The protocol's error codes.
const (
	codeInconsistent     = -2
	codeMarshalling      = -5
	codeUnimplemented    = -6
	codeBadArguments     = -8
	codeNoNode           = -101
	codeNoAuth           = -102
	codeBadVersion       = -103
	codeEphemeralParent  = -108
	codeNodeExists       = -110
	codeNotEmpty         = -111
	codeInvalidACL       = -114
	codeAuthFailed       = -115
	codeNoWatcher        = -121
	codeReconfigDisabled = -123
	codeQuotaExceeded    = -125
)
