package embedded_test

import (
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

// Whether a follower is reachable depends on the follower and on its server.
func TestFollowerListens(t *testing.T) {
	t.Parallel()
	test := func(t *testing.T, cfg embedded.Config, dial func(s *embedded.Server, address string) (net.Conn, error)) {
		t.Parallel()
		s := suite.Got(embedded.Start(cfg))(t)
		f, other := s.Follower(), s.Follower()
		address := suite.Got(f.Listen())(t)
		again := suite.Got(f.Listen())(t)
		require.Equal(t, address, again)
		elsewhere := suite.Got(other.Listen())(t)
		require.NotEqual(t, address, elsewhere)
		require.NotEqual(t, address, s.ConnectString())
		require.NotEqual(t, elsewhere, s.ConnectString())

		reaches := func(address string, want bool) {
			t.Helper()
			c, err := dial(s, address)
			if !want {
				require.ErrorIs(t, err, syscall.ECONNREFUSED)
				return
			}
			require.NoError(t, err)
			c.Close()
		}
		reaches(address, true)

		// Its connections end when it is stopped. Those to others don't.
		gone := suite.Got(dial(s, address))(t)
		stays := suite.Got(dial(s, elsewhere))(t)
		f.Stop()
		require.Error(t, suite.Err(gone.Read(make([]byte, 1))))
		require.NoError(t, stays.SetReadDeadline(time.Now().Add(10*time.Millisecond)))
		require.ErrorIs(t, suite.Err(stays.Read(make([]byte, 1))), os.ErrDeadlineExceeded)
		stays.Close()
		reaches(address, false)
		reaches(elsewhere, true)
		reaches(s.ConnectString(), true)

		s.Stop()
		reaches(elsewhere, false)
		require.NoError(t, other.Resume())
		reaches(elsewhere, false)

		require.NoError(t, s.Resume())
		reaches(elsewhere, true)
		reaches(address, false)
		require.NoError(t, f.Resume())
		reaches(address, true)

		// One that begins to listen while it is stopped is reachable from Resume on.
		late := s.Follower()
		late.Stop()
		lateAt := suite.Got(late.Listen())(t)
		reaches(lateAt, false)
		require.NoError(t, late.Resume())
		reaches(lateAt, true)

		gone = suite.Got(dial(s, address))(t)
		f.Close()
		require.NoError(t, gone.SetReadDeadline(time.Now().Add(5*time.Second))) // soon enough to tell it from a time-out
		_, err := gone.Read(make([]byte, 1))
		require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
		require.Error(t, err)
		reaches(address, false)
		require.ErrorIs(t, f.Resume(), net.ErrClosed)
		require.ErrorIs(t, suite.Err(f.Listen()), net.ErrClosed)
		require.NoError(t, s.Close())
		reaches(elsewhere, false)
		require.ErrorIs(t, other.Resume(), net.ErrClosed)
	}

	t.Run("tcp", func(t *testing.T) {
		test(t, embedded.Config{}, func(_ *embedded.Server, address string) (net.Conn, error) {
			return net.Dial("tcp", address)
		})
	})
	t.Run("memory", func(t *testing.T) {
		test(t, embedded.Config{InMemory: true}, func(s *embedded.Server, address string) (net.Conn, error) {
			return s.Dial("tcp", address, time.Second)
		})
	})
}
