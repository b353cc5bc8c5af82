package embedded_test

import (
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/internal/zkwire"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

func TestConnectionsInMemoryApplyBackPressure(t *testing.T) {
	t.Parallel()
	bubble(t, embedded.Config{}, func(t *testing.T, s *embedded.Server) {
		// A client that sends requests and never reads: the answers fill one direction, then the
		// server stops reading, then the requests fill the other.
		c := connect(t, s, hello{timeout: 4000})
		c.must(t, zkwire.OpCreate, packet{}.create("/big", make([]byte, 100_000), 0))
		c.nc.SetDeadline(time.Time{})
		c.nc.SetWriteDeadline(time.Now().Add(time.Second))
		var err error
		for err == nil {
			err = c.send(zkwire.OpGetData, packet{}.string("/big").bool(false))
		}
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)

		// Its pings do not arrive either, so its session expires. The client reads what was sent
		// before, and then the end.
		time.Sleep(10 * time.Second)
		suite.Got(io.Copy(io.Discard, c.nc))(t)
	})
}

func TestIdleServerHasNoTimer(t *testing.T) {
	t.Parallel()
	// With a ticker, a century of virtual time would take too long.
	began := time.Now()
	bubble(t, embedded.Config{}, func(t *testing.T, s *embedded.Server) {
		time.Sleep(100 * 365 * 24 * time.Hour)
		c := connect(t, s, hello{})
		c.must(t, zkwire.OpCreateContainer, packet{}.create("/c", nil, 4))
		c.must(t, zkwire.OpDelete, packet{}.string("/c").int32(-1))
		c.must(t, zkwire.OpCloseSession, nil)

		f := s.Follower()
		f.Lag(lag)
		connect(t, f, hello{}).must(t, zkwire.OpCloseSession, nil)
		time.Sleep(100 * 365 * 24 * time.Hour)
	})
	require.Less(t, time.Since(began), time.Minute, "in real time")
}

func TestServerDoesNotHideADeadlock(t *testing.T) {
	t.Parallel()
	const inside = "ZKRECIPES_TEST_DEADLOCK"
	if os.Getenv(inside) != "" {
		bubble(t, embedded.Config{}, func(t *testing.T, s *embedded.Server) {
			connect(t, s, hello{}).must(t, zkwire.OpCloseSession, nil)
			select {}
		})
		return
	}
	self := suite.Got(os.Executable())(t)
	cmd := exec.CommandContext(t.Context(), self, "-test.run=^"+t.Name()+"$", "-test.timeout=2m")
	cmd.Env = append(os.Environ(), inside+"=1")
	out, err := cmd.CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "deadlock")
}
