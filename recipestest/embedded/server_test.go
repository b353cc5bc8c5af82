package embedded_test

import (
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/internal/zkwire"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

func TestStartRefusesInvalidConfigurations(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]embedded.Config{
		"bad address":           {Address: "nowhere"},
		"unknown version":       {Version: "3.7"},
		"tiny tick":             {TickTime: time.Microsecond},
		"inverted timeouts":     {MinSessionTimeout: time.Minute, MaxSessionTimeout: time.Second},
		"timeout beyond 32 bit": {MaxSessionTimeout: 1000 * time.Hour},
		"negative packet limit": {MaxPacket: -1},
		"negative interval":     {ContainerInterval: -1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.ErrorContains(t, suite.Err(embedded.Start(cfg)), "embedded: ")
		})
	}
}

func TestStartFailsOnAnAddressInUse(t *testing.T) {
	t.Parallel()
	s := start(t, embedded.Config{})
	require.ErrorIs(t, suite.Err(embedded.Start(embedded.Config{Address: s.ConnectString()})), syscall.EADDRINUSE)
}

func TestCloseIsIdempotentAndRefusesLaterCalls(t *testing.T) {
	t.Parallel()
	s := start(t, embedded.Config{})
	c := connect(t, s, hello{})
	require.NoError(t, s.Close())
	require.NoError(t, s.Close())

	require.Error(t, suite.Err(c.receive()))
	require.ErrorIs(t, suite.Err(s.Dial("tcp", s.ConnectString(), time.Second)), syscall.ECONNREFUSED)
	require.ErrorIs(t, suite.Err(net.Dial("tcp", s.ConnectString())), syscall.ECONNREFUSED)
	require.ErrorIs(t, s.Resume(), net.ErrClosed)
	require.False(t, s.ExpireSession(c.session+1))
}

func TestCloseDoesNotWaitForClientsThatDoNotRead(t *testing.T) {
	t.Parallel()
	s := start(t, embedded.Config{})
	c := connect(t, s, hello{})
	require.Zero(t, c.must(t, zkwire.OpCreate, packet{}.create("/big", make([]byte, 1<<20-200), 0)).code)
	for range 64 { // far more than the sockets hold
		require.NoError(t, c.send(zkwire.OpGetData, packet{}.string("/big").bool(false)))
	}

	closed := make(chan error, 1)
	go func() { closed <- s.Close() }()
	require.NoError(t, suite.Wait(t, closed))
}

func TestStopKeepsDataAndSessions(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]embedded.Config{"over TCP": {}, "in memory": {InMemory: true}} {
		for what, interrupt := range map[string]func(*testing.T, *embedded.Server){
			"stopped": func(t *testing.T, s *embedded.Server) {
				s.Stop()
				require.ErrorIs(t, suite.Err(s.Dial("tcp", "", time.Second)), syscall.ECONNREFUSED)
				require.NoError(t, s.Resume())
				require.NoError(t, s.Resume())
			},
			"connections dropped": func(_ *testing.T, s *embedded.Server) { s.DropConnections() },
		} {
			t.Run(name+" "+what, func(t *testing.T) {
				t.Parallel()
				s := start(t, cfg)
				c := connect(t, s, hello{})
				require.Zero(t, c.must(t, zkwire.OpCreate, packet{}.create("/mine", nil, 1)).code)
				interrupt(t, s)
				require.Error(t, suite.Err(c.receive()), "its connection has ended")

				c = connect(t, s, hello{session: c.session, password: c.password})
				require.NotZero(t, c.session)
				require.Equal(t, c.session, c.must(t, zkwire.OpExists, packet{}.string("/mine").bool(false)).stat().EphemeralOwner)
			})
		}
	}
}
