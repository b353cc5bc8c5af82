package embedded_test

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/internal/zkwire"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

func TestHandshakeClampsTheTimeout(t *testing.T) {
	t.Parallel()
	s := start(t, embedded.Config{InMemory: true})
	require.EqualValues(t, 4000, connect(t, s, hello{timeout: -5}).timeout)
	require.EqualValues(t, 4000, connect(t, s, hello{timeout: 1}).timeout)
	require.EqualValues(t, 12345, connect(t, s, hello{timeout: 12345}).timeout)
	require.EqualValues(t, 40000, connect(t, s, hello{timeout: 1 << 30}).timeout)

	s = start(t, embedded.Config{InMemory: true, TickTime: time.Second, MaxSessionTimeout: 5 * time.Second})
	require.EqualValues(t, 2000, connect(t, s, hello{timeout: 1}).timeout)
	require.EqualValues(t, 5000, connect(t, s, hello{timeout: 1 << 30}).timeout)
}

func TestHandshakeAnswersReadOnlyFieldOnlyIfAsked(t *testing.T) {
	t.Parallel()
	s := start(t, embedded.Config{InMemory: true})
	require.Empty(t, connect(t, s, hello{}).readOnly)
	require.Equal(t, []byte{0}, connect(t, s, hello{readOnly: true}).readOnly)
}

// bubble runs f inside a synctest bubble with a server in memory.
func bubble(t *testing.T, cfg embedded.Config, f func(t *testing.T, s *embedded.Server)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		cfg.InMemory = true
		f(t, start(t, cfg))
	})
}

func TestSessionsExpireNeverEarlyAndATickLateAtMost(t *testing.T) {
	t.Parallel()
	for _, after := range []time.Duration{0, time.Millisecond, 999 * time.Millisecond, 1999 * time.Millisecond} {
		bubble(t, embedded.Config{}, func(t *testing.T, s *embedded.Server) {
			time.Sleep(after) // start at any point of a tick
			began := time.Now()
			c := connect(t, s, hello{timeout: 6000})
			c.nc.SetDeadline(time.Time{})
			require.ErrorIs(t, suite.Err(c.receive()), io.EOF)
			require.Greater(t, time.Since(began), 6*time.Second)
			require.LessOrEqual(t, time.Since(began), 8*time.Second)
			require.Zero(t, connect(t, s, hello{session: c.session, password: c.password}).session)
		})
	}
}

func TestAnyRequestKeepsASessionAlive(t *testing.T) {
	t.Parallel()
	for name, op := range map[string]zkwire.Op{"ping": zkwire.OpPing, "read": zkwire.OpExists, "failing write": zkwire.OpDelete} {
		t.Run(name, func(t *testing.T) {
			bubble(t, embedded.Config{}, func(t *testing.T, s *embedded.Server) {
				c := connect(t, s, hello{timeout: 4000})
				c.nc.SetDeadline(time.Time{})
				for range 20 {
					time.Sleep(3900 * time.Millisecond)
					c.must(t, op, packet{}.string("/none").int32(-1))
				}
			})
		})
	}
}

func TestNothingAgesWhileTheServerIsStopped(t *testing.T) {
	t.Parallel()
	bubble(t, embedded.Config{}, func(t *testing.T, s *embedded.Server) {
		c := connect(t, s, hello{timeout: 4000})
		time.Sleep(3 * time.Second)
		s.Stop()
		time.Sleep(time.Hour)
		require.NoError(t, s.Resume())
		time.Sleep(3 * time.Second) // within the timeout, which has started again
		c = connect(t, s, hello{timeout: 4000, session: c.session, password: c.password})
		require.NotZero(t, c.session)
		time.Sleep(7 * time.Second)
		require.Zero(t, connect(t, s, hello{session: c.session, password: c.password}).session)
	})
}

func TestSilentConnectionsAreClosed(t *testing.T) {
	t.Parallel()
	bubble(t, embedded.Config{}, func(t *testing.T, s *embedded.Server) {
		var conns []net.Conn
		for _, first := range []string{"", "\x00\x00", "\x00\x00\x00\x2c\x00"} {
			nc := openRaw(t, s)
			nc.SetDeadline(time.Time{})
			suite.Got(nc.Write([]byte(first)))(t)
			conns = append(conns, nc)
		}
		for _, nc := range conns {
			require.ErrorIs(t, suite.Err(nc.Read(make([]byte, 1))), io.EOF)
		}
	})
}

func TestSendingLastAnswersTimesOut(t *testing.T) {
	t.Parallel()
	bubble(t, embedded.Config{}, func(t *testing.T, s *embedded.Server) {
		c := connect(t, s, hello{})
		// An answer, and an event of the session's own end, that exceed what the connection
		// buffers.
		c.must(t, zkwire.OpCreate, packet{}.create("/big", make([]byte, 50_000), 0))
		path := "/" + strings.Repeat("x", 50_000)
		c.must(t, zkwire.OpCreate, packet{}.create(path, nil, 1))
		c.must(t, zkwire.OpExists, packet{}.string(path).bool(true))

		c.nc.SetDeadline(time.Time{})
		_, err := c.nc.Write(append(
			frame(packet{}.int32(1).op(zkwire.OpGetData).string("/big").bool(false)),
			frame(packet{}.int32(2).op(zkwire.OpCloseSession))...))
		require.NoError(t, err)

		time.Sleep(time.Minute)
		n := suite.Got(io.Copy(io.Discard, c.nc))(t)
		require.Less(t, n, int64(100_000))
	})
}

func TestRequestsOfAnEndedSessionAreNotCarriedOut(t *testing.T) {
	t.Parallel()
	s := start(t, embedded.Config{InMemory: true})
	witness := connect(t, s, hello{})
	const burst = 500
	for range 20 {
		c := connect(t, s, hello{})

		var creates packet
		for range burst {
			creates = append(creates, frame(packet{}.int32(1).op(zkwire.OpCreate).create("/n-", nil, 3))...)
		}

		written := make(chan struct{})
		go func() {
			defer close(written)
			c.nc.Write(creates) // cut short when the session ends
		}()

		suite.Got(c.receive())(t)
		require.True(t, s.ExpireSession(c.session))
		suite.Wait(t, written)
		suite.Got(io.Copy(io.Discard, c.nc))(t)

		names := witness.must(t, zkwire.OpGetChildren, packet{}.string("/").bool(false)).Strings()
		require.Equal(t, []string{"zookeeper"}, names, "no node may outlive its session")
	}
}

func TestEnforceAuthDemandsCredentials(t *testing.T) {
	t.Parallel()
	s := start(t, embedded.Config{InMemory: true, EnforceAuth: true})
	c := connect(t, s, hello{})
	const authenticationRequired = -124
	require.EqualValues(t, authenticationRequired, c.must(t, zkwire.OpPing, nil).code)
	require.Error(t, suite.Err(c.call(zkwire.OpPing, nil)), "the connection has ended")

	c = connect(t, s, hello{})
	c.must(t, zkwire.OpAuth, packet{}.int32(0).string("digest").buffer([]byte("me:secret")))
	require.Zero(t, c.must(t, zkwire.OpPing, nil).code)
}

// The end of a session is one record, with the paths of all of its ephemeral nodes.
func TestServerEndsWithASessionThatIsTooLargeToBeLogged(t *testing.T) {
	const limit = 4 + 2*(4+len("/12345678"))
	for name, end := range map[string]func(*testing.T, *embedded.Server, *wireClient){
		"closed":          func(t *testing.T, s *embedded.Server, c *wireClient) { c.call(zkwire.OpCloseSession, nil) },
		"expired":         func(t *testing.T, s *embedded.Server, c *wireClient) { time.Sleep(away) },
		"expired by hand": func(t *testing.T, s *embedded.Server, c *wireClient) { s.ExpireSession(c.session) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := suite.Got(embedded.Start(embedded.Config{InMemory: true, MaxCloseSession: limit}))(t)
				for _, second := range []string{"/abcdefgh", "/abcdefghi"} {
					require.NoError(t, s.Err())
					c := connect(t, s, hello{})
					for _, path := range []string{"/12345678", second} {
						require.Zero(t, c.must(t, zkwire.OpCreate, packet{}.create(path, []byte("data does not count"), 1)).code)
					}
					end(t, s, c)
				}
				suite.Wait(t, s.Done())
				require.ErrorContains(t, s.Err(), fmt.Sprintf("a record of %d bytes, for 2 ephemeral nodes, and a server can read %d", limit+1, limit))
				require.Error(t, s.Resume())
				require.ErrorIs(t, s.Close(), s.Err())
			})
		})
	}
}

func TestSessionThatIsTooLargeToBeLoggedSurvivesItsServer(t *testing.T) {
	t.Parallel()
	cfg := embedded.Config{InMemory: true, MaxCloseSession: 10, Dir: t.TempDir()}
	s, err := embedded.Start(cfg)
	require.NoError(t, err)
	c := connect(t, s, hello{})
	for range 2 {
		require.Contains(t, []zkwire.Code{0, zkwire.CodeNodeExists}, c.must(t, zkwire.OpCreate, packet{}.create("/ephemeral", nil, 1)).code)
		_, err := c.call(zkwire.OpCloseSession, nil)
		require.Error(t, err)
		require.Error(t, s.Close())
		if s, err = embedded.Start(cfg); err != nil {
			break
		}
		c = connect(t, s, hello{session: c.session, password: c.password})
		require.NotZero(t, c.session)
	}
	require.NoError(t, err)
	require.NoError(t, s.Close())
}
