package embedded_test

import (
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

func TestStartRefusesInvalidConfigurations(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]embedded.Config{
		"bad address":           {Address: "nowhere"},
		"tiny tick":             {TickTime: time.Microsecond},
		"inverted timeouts":     {MinSessionTimeout: time.Minute, MaxSessionTimeout: time.Second},
		"timeout beyond 32 bit": {MaxSessionTimeout: 1000 * time.Hour},
		"negative packet limit": {MaxPacket: -1},
		"negative interval":     {ContainerInterval: -1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := embedded.Start(cfg)
			require.ErrorContains(t, err, "embedded: ")
		})
	}
}

func TestStartFailsOnAnAddressInUse(t *testing.T) {
	t.Parallel()
	s := start(t, embedded.Config{})
	_, err := embedded.Start(embedded.Config{Address: s.ConnectString()})
	require.ErrorIs(t, err, syscall.EADDRINUSE)
}

func TestCloseIsIdempotentAndRefusesLaterCalls(t *testing.T) {
	t.Parallel()
	s := start(t, embedded.Config{})
	c := connect(t, s, hello{})
	require.NoError(t, s.Close())
	require.NoError(t, s.Close())

	_, err := c.receive()
	require.Error(t, err)
	_, err = s.Dial("tcp", s.ConnectString(), time.Second)
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
	_, err = net.Dial("tcp", s.ConnectString())
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
	require.ErrorIs(t, s.Resume(), net.ErrClosed)
	require.False(t, s.ExpireSession(c.session+1))
}

func TestCloseDoesNotWaitForClientsThatDoNotRead(t *testing.T) {
	t.Parallel()
	s := start(t, embedded.Config{})
	c := connect(t, s, hello{})
	require.Zero(t, c.must(t, opCreate, packet{}.create("/big", make([]byte, 1<<20-200), 0)).code)
	for range 64 { // far more than the sockets hold
		require.NoError(t, c.send(opGetData, packet{}.string("/big").bool(false)))
	}

	closed := make(chan error, 1)
	go func() { closed <- s.Close() }()
	require.NoError(t, receive(t, closed))
}

func TestStopKeepsDataAndSessions(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]embedded.Config{"over TCP": {}, "in memory": {InMemory: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, cfg)
			c := dial(t, s)
			id := c.SessionID()
			_, err := c.Create("/mine", nil, zk.FlagEphemeral, open)
			require.NoError(t, err)

			s.Stop()
			_, err = s.Dial("tcp", "", time.Second)
			require.ErrorIs(t, err, syscall.ECONNREFUSED)
			require.NoError(t, s.Resume())
			require.NoError(t, s.Resume())

			_, st, err := get(t, c, "/mine")
			require.NoError(t, err)
			require.Equal(t, id, st.EphemeralOwner)
			require.Equal(t, id, c.SessionID())
		})
	}
}

func TestDropConnectionsKeepsSessions(t *testing.T) {
	t.Parallel()
	s := start(t, embedded.Config{})
	c := dial(t, s)
	id := c.SessionID()
	_, err := c.Create("/mine", nil, zk.FlagEphemeral, open)
	require.NoError(t, err)
	s.DropConnections()
	_, st, err := get(t, c, "/mine")
	require.NoError(t, err)
	require.Equal(t, id, st.EphemeralOwner)
}

func TestSetSequenceNeedsANode(t *testing.T) {
	t.Parallel()
	s := start(t, embedded.Config{})
	require.ErrorContains(t, s.SetSequence("/none", 1), "/none")
}

func TestServersOverTCPCanBeDialledInMemoryToo(t *testing.T) {
	t.Parallel()
	s := start(t, embedded.Config{})
	c, _, err := zk.Connect([]string{s.ConnectString()}, 40*time.Second, zk.WithLogger(silent{}))
	require.NoError(t, err)
	defer c.Close()
	_, err = c.Create("/a", nil, 0, open)
	require.NoError(t, err)
	ok, _, err := dial(t, s).Exists("/a")
	require.NoError(t, err)
	require.True(t, ok)
}

// get reads a node, and retries while the connection is cut.
func get(t *testing.T, c *zk.Conn, path string) ([]byte, *zk.Stat, error) {
	t.Helper()
	for deadline := time.Now().Add(waitLimit); ; {
		data, st, err := c.Get(path)
		if err == nil || time.Now().After(deadline) {
			return data, st, err
		}
	}
}
