package ensemble_test

import (
	"fmt"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/recipestest/ensemble"
)

func TestExamples(t *testing.T) {
	t.Run("a real server", lockOnARealServer)
	t.Run("an ensemble whose leader is stopped", lockSurvivesALeader)
	t.Run("TLS", func(t *testing.T) {
		suite.Needs(t, ensemble.Real(t), suite.TLS)
		a := suite.NewAuthority(t)
		certificate, key := a.Pair(t, "localhost", "server")
		require.NotEmpty(t, secureMember(t, append(certificate, key...), a.PEM()).SecureConnectString())
	})
}

// TestCluster has its cases as subtests, because starting a cluster takes long.
func TestCluster(t *testing.T) {
	const (
		sessionTimeout = 12 * time.Second // of sessions that shall expire, though no process is slow for so long
		longTimeout    = 30 * time.Second // of sessions that shall not
		ticks          = 50
		syncLimit      = ticks * 500 * time.Millisecond // far longer than a session takes to expire
	)
	acl := zk.WorldACL(zk.PermAll)
	cluster := ensemble.Start(t, 3,
		ensemble.WithSyncLimit(ticks), ensemble.WithConfig(fmt.Sprintf("maxSessionTimeout=%d", longTimeout.Milliseconds())))
	require.Len(t, cluster.Members(), 3)
	require.Len(t, cluster.Followers(), 2)

	t.Run("DelayedFollowerLags", func(t *testing.T) {
		leader, follower := cluster.Leader(), cluster.Followers()[0]
		writer := dial(t, leader.ConnectString(), longTimeout)
		reader := dial(t, follower.ConnectString(), longTimeout)
		follower.Delay(time.Second)
		defer follower.Delay(0)

		var path string
		attempt := 0
		suite.Soon(t, func() bool {
			path = fmt.Sprintf("/lag-%d", attempt)
			attempt++
			suite.Got(writer.Create(path, nil, 0, acl))(t)
			return !suite.ReadAt(t, reader.Exists, path)
		}, "the reader does not see the write yet")

		suite.Got(reader.Sync(path))(t)
		require.True(t, suite.ReadAt(t, reader.Exists, path), "Sync waits for the write")
	})

	t.Run("IsolatedFollowerServesWhileSessionsExpire", func(t *testing.T) {
		leader, follower := cluster.Leader(), cluster.Followers()[0]
		observer := dial(t, leader.ConnectString(), longTimeout)
		holder := dial(t, follower.ConnectString(), sessionTimeout)
		suite.Got(holder.Create("/held", nil, zk.FlagEphemeral, acl))(t)

		begin := time.Now()
		follower.Isolate()
		suite.Soon(t, func() bool {
			exists, _, err := observer.Exists("/held")
			return err == nil && !exists
		}, "the leader expires the session")
		expired := time.Since(begin)

		require.True(t, suite.ReadAt(t, holder.Exists, "/held"), "the isolated follower does not know of the expiry")
		require.Equal(t, zk.StateHasSession, holder.State())
		suite.Soon(t, func() bool {
			return holder.State() != zk.StateHasSession
		}, "the follower gives its leader up")
		t.Logf("expired on the leader after %v, disconnected by the follower after %v", expired, time.Since(begin))

		begin = time.Now()
		follower.Rejoin()
		cluster.WaitHealthy()
		t.Logf("rejoined after %v", time.Since(begin))
	})

	t.Run("PausedMemberAcceptsButDoesNotAnswer", func(t *testing.T) {
		follower := cluster.Followers()[0]
		for range 20 { // a thread that stops late would answer now and then
			follower.Pause()
			conn := suite.Got(net.Dial("tcp", follower.ConnectString()))(t)
			defer conn.Close()
			suite.Got(io.WriteString(conn, "ruok"))(t)
			require.NoError(t, conn.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
			require.ErrorIs(t, suite.Err(io.ReadAll(conn)), os.ErrDeadlineExceeded)

			follower.Resume()
			require.NoError(t, conn.SetReadDeadline(time.Now().Add(30*time.Second)))
			answer := suite.Got(io.ReadAll(conn))(t)
			require.Equal(t, "imok", string(answer))
		}
		cluster.WaitHealthy()
	})
}
