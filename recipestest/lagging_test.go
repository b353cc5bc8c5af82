package recipestest_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

const behind = 300 * time.Millisecond

// requireRead is requireExists for a client that doesn't sync first.
func requireRead(t *testing.T, conn *zk.Conn, path string, want bool) {
	t.Helper()
	got := suite.ReadAt(t, conn.Exists, path)
	require.Equal(t, want, got, path)
}

// Each follower has a client: the first lags by nothing, and the last by all of it.
func TestClientsOfALaggingServerReadAnOlderState(t *testing.T) {
	t.Parallel()
	recipestest.Bubble(t, func(t *testing.T, s *recipestest.Server) {
		link, root := s.Link(t), s.Root(t)
		var conns []*zk.Conn
		for _, dial := range []zk.Dialer{s.Dial, s.Dial, link.Dial, link.Dial} {
			conns = append(conns, connect(t, s, dial, 10*time.Second))
		}
		began := time.Now()
		create(t, conns[0], root, 0)
		require.Zero(t, time.Since(began), "the first follower does not lag")
		for i, conn := range conns {
			time.Sleep(time.Until(began.Add(behind*time.Duration(i)/3 - time.Millisecond)))
			requireRead(t, conn, root, i == 0)
			time.Sleep(time.Until(began.Add(behind * time.Duration(i) / 3)))
			synctest.Wait()
			requireRead(t, conn, root, true)
		}

		// A client sees what was written before its sync, and its own writes.
		create(t, conns[0], root+"/other", 0)
		suite.Got(conns[3].Sync(root))(t)
		requireRead(t, conns[3], root+"/other", true)
		create(t, conns[3], root+"/own", 0)
		requireRead(t, conns[3], root+"/own", true)
	}, recipestest.Lagging(behind))
}
