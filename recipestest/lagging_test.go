package recipestest_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipestest"
)

const behind = 300 * time.Millisecond

// lagging runs a test in virtual time, with a client for each of the followers: the first lags by
// nothing, and the last by all of it.
func lagging(t *testing.T, test func(t *testing.T, s *recipestest.Server, conns []*zk.Conn)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := recipestest.Start(t, recipestest.WithInMemory(), recipestest.Lagging(behind))
		var conns []*zk.Conn
		for range 4 {
			conns = append(conns, connect(t, s, s.Dial, 10*time.Second))
		}
		test(t, s, conns)
	})
}

// requireRead is requireExists for a client that does not sync first.
func requireRead(t *testing.T, conn *zk.Conn, path string, want bool) {
	t.Helper()
	got, _, err := conn.Exists(path)
	require.NoError(t, err)
	require.Equal(t, want, got, path)
}

func TestClientsOfALaggingServerReadAnOlderState(t *testing.T) {
	lagging(t, func(t *testing.T, s *recipestest.Server, conns []*zk.Conn) {
		root := s.Root(t)
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
	})
}

func TestSyncAndOwnWritesOnALaggingServer(t *testing.T) {
	lagging(t, func(t *testing.T, s *recipestest.Server, conns []*zk.Conn) {
		root := s.Root(t)
		create(t, conns[0], root, 0)
		_, err := conns[3].Sync(root)
		require.NoError(t, err)
		requireRead(t, conns[3], root, true)
		create(t, conns[3], root+"/own", 0)
		requireRead(t, conns[3], root+"/own", true)
	})
}

func TestLinkLeadsToALaggingServer(t *testing.T) {
	lagging(t, func(t *testing.T, s *recipestest.Server, conns []*zk.Conn) {
		root, link := s.Root(t), s.Link(t)
		first, second := connect(t, s, link.Dial, 10*time.Second), connect(t, s, link.Dial, 10*time.Second)
		create(t, first, root, 0)
		requireRead(t, second, root, false)
	})
}
