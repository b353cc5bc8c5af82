package embedded_test

import (
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

// A silencer dials a server. While mute, it refuses to dial and discards what its clients write.
type silencer struct {
	dial zk.Dialer
	mu   sync.Mutex
	mute bool
}

func (s *silencer) Dial(network, address string, timeout time.Duration) (net.Conn, error) {
	if s.muted() {
		return nil, errors.New("the network is mute")
	}
	nc, err := s.dial(network, address, timeout)
	return &silencedConn{nc, s}, err
}

func (s *silencer) set(mute bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mute = mute
}

func (s *silencer) muted() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mute
}

type silencedConn struct {
	net.Conn
	s *silencer
}

func (c *silencedConn) Write(b []byte) (int, error) {
	if c.s.muted() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

func TestSessionLivesAndExpiresInABubble(t *testing.T) {
	t.Parallel()
	began := time.Now()
	bubble(t, embedded.Config{}, func(t *testing.T, s *embedded.Server) {
		network := &silencer{dial: s.Dial}
		c, events, err := zk.Connect([]string{s.ConnectString()}, 6*time.Second,
			zk.WithDialer(network.Dial), zk.WithLogger(silent{}))
		require.NoError(t, err)
		defer c.Close()
		go func() {
			for range events { // until Close
			}
		}()
		witness := dial(t, s)
		_, err = c.Create("/mine", nil, zk.FlagEphemeral, open)
		require.NoError(t, err)
		id := c.SessionID()

		// Pings alone keep the session for two minutes.
		time.Sleep(2 * time.Minute)
		_, st, err := witness.Get("/mine")
		require.NoError(t, err)
		require.Equal(t, id, st.EphemeralOwner)

		// Silence for less than the timeout does not end the session. The last ping may be two
		// seconds old, and the client may take a second to reconnect.
		network.set(true)
		time.Sleep(2 * time.Second)
		network.set(false)
		_, err = c.Sync("/")
		for err != nil {
			time.Sleep(100 * time.Millisecond)
			_, err = c.Sync("/")
		}
		require.Equal(t, id, c.SessionID())

		// A longer silence ends the session, and its node is deleted.
		_, _, gone, err := witness.GetW("/mine")
		require.NoError(t, err)
		silence := time.Now()
		network.set(true)
		require.Equal(t, zk.EventNodeDeleted, (<-gone).Type)
		lasted := time.Since(silence)
		require.Greater(t, lasted, 4*time.Second) // the last ping was up to two seconds old
		require.LessOrEqual(t, lasted, 8*time.Second)

		// After it the client has a new session.
		network.set(false)
		for limit := time.Now().Add(time.Minute); ; {
			require.True(t, time.Now().Before(limit), "no new session")
			time.Sleep(100 * time.Millisecond)
			if ok, _, err := c.Exists("/"); err == nil {
				require.True(t, ok)
				break
			}
		}
		require.NotEqual(t, id, c.SessionID())
		require.NotZero(t, c.SessionID())
	})
	require.Less(t, time.Since(began), time.Minute, "in real time")
}

func TestSessionSurvivesRestartsInABubble(t *testing.T) {
	t.Parallel()
	bubble(t, embedded.Config{}, func(t *testing.T, s *embedded.Server) {
		c := dial(t, s)
		id := c.SessionID()
		for range 10 {
			s.Stop()
			time.Sleep(time.Minute)
			require.NoError(t, s.Resume())
			time.Sleep(3 * time.Second)
			_, err := c.Sync("/")
			require.NoError(t, err)
			require.Equal(t, id, c.SessionID())
		}
	})
}

func TestConnectionsInMemoryHonourDeadlines(t *testing.T) {
	t.Parallel()
	bubble(t, embedded.Config{}, func(t *testing.T, s *embedded.Server) {
		nc := openRaw(t, s)
		one := make([]byte, 1)

		began := time.Now()
		nc.SetReadDeadline(began.Add(time.Second))
		_, err := nc.Read(one)
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.Equal(t, time.Second, time.Since(began))
		var timeout net.Error
		require.ErrorAs(t, err, &timeout)
		require.True(t, timeout.Timeout())

		// A deadline in the past wakes a reader that is blocked.
		nc.SetReadDeadline(time.Time{})
		failed := make(chan error)
		go func() {
			_, err := nc.Read(one)
			failed <- err
		}()
		synctest.Wait()
		nc.SetReadDeadline(time.Now())
		require.ErrorIs(t, <-failed, os.ErrDeadlineExceeded)

		// So does closing the connection.
		nc.SetReadDeadline(time.Time{})
		go func() {
			_, err := nc.Read(one)
			failed <- err
		}()
		synctest.Wait()
		nc.Close()
		require.ErrorIs(t, <-failed, net.ErrClosed)
		_, err = nc.Write(one)
		require.ErrorIs(t, err, net.ErrClosed)
	})
}

func TestConnectionsInMemoryApplyBackPressure(t *testing.T) {
	t.Parallel()
	bubble(t, embedded.Config{}, func(t *testing.T, s *embedded.Server) {
		// A client that sends requests and never reads: the answers fill one direction, then the
		// server stops reading, then the requests fill the other.
		c := connect(t, s, hello{timeout: 4000})
		c.must(t, opCreate, packet{}.create("/big", make([]byte, 100_000), 0))
		c.nc.SetDeadline(time.Time{})
		c.nc.SetWriteDeadline(time.Now().Add(time.Second))
		var err error
		for err == nil {
			err = c.send(opGetData, packet{}.string("/big").bool(false))
		}
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)

		// Its pings do not arrive either, so its session expires. The client reads what was sent
		// before, and then the end.
		time.Sleep(10 * time.Second)
		_, err = io.Copy(io.Discard, c.nc)
		require.NoError(t, err)
	})
}

func TestIdleServerHasNoTimer(t *testing.T) {
	t.Parallel()
	// With a ticker, a century of virtual time would take too long.
	began := time.Now()
	bubble(t, embedded.Config{}, func(t *testing.T, s *embedded.Server) {
		time.Sleep(100 * 365 * 24 * time.Hour)
		c := connect(t, s, hello{})
		c.must(t, opCreateContainer, packet{}.create("/c", nil, 4))
		c.must(t, opDelete, packet{}.string("/c").int32(-1))
		c.must(t, opCloseSession, nil)
		time.Sleep(100 * 365 * 24 * time.Hour)
	})
	require.Less(t, time.Since(began), time.Minute, "in real time")
}

func TestServerDoesNotHideADeadlock(t *testing.T) {
	t.Parallel()
	const inside = "ZKRECIPES_TEST_DEADLOCK"
	if os.Getenv(inside) != "" {
		bubble(t, embedded.Config{}, func(t *testing.T, s *embedded.Server) {
			connect(t, s, hello{}).must(t, opCloseSession, nil)
			select {}
		})
		return
	}
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), self, "-test.run=^"+t.Name()+"$", "-test.timeout=2m")
	cmd.Env = append(os.Environ(), inside+"=1")
	out, err := cmd.CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "deadlock")
}
