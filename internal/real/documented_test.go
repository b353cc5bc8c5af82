package real_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/queue"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/recipestest/ensemble"
)

// TestDocumentedSettingsOfAnEnsemble has members with settings that are documented and rare: they
// check ACLs by themselves, and a leader answers a Sync before it has committed its proposals.
func TestDocumentedSettingsOfAnEnsemble(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute")
	}
	t.Parallel()
	cluster := ensemble.Start(t, 3, ensemble.WithConfig("maxSessionTimeout=20000"), ensemble.WithJVMFlags(
		"-Dzookeeper.enableEagerACLCheck=true", "-Dzookeeper.forward_learner_requests_to_commit_processor_disabled=true"))
	cluster.WaitHealthy()
	t.Run("AnOfferIsNotMadeTwice", func(t *testing.T) {
		for i := range 3 {
			offerAcrossTheLeader(t, cluster, fmt.Sprintf("/queue-%d", i))
		}
	})
	t.Run("ServersSurviveTheEndOfASessionThatIsFull", func(t *testing.T) { endFullSession(t, cluster) })
	t.Run("ADeposedLeaderProvesNothing", func(t *testing.T) { deposeLeader(t, cluster) })
}

// offerAcrossTheLeader has an Offer sent through a follower and proposed, but not committed yet,
// when the session goes on at the leader.
func offerAcrossTheLeader(t *testing.T, cluster *ensemble.Cluster, path string) {
	cluster.WaitHealthy()
	leader, follower := cluster.Leader(), cluster.Followers()[0]
	c, first, second := connectAcross(t, cluster, follower, leader)
	q := queue.New(c, path)
	suite.Got(q.Offer(suite.Lasting(t), []byte("first")))(t)

	// Everything between members takes longer now, so a proposal isn't committed at once.
	leader.Delay(200 * time.Millisecond)
	time.Sleep(100 * time.Millisecond)
	sent := first.Sent(recipestest.OpMulti, first.Count(recipestest.OpMulti)+1)
	offered := suite.Later(func() error { _, err := q.Offer(suite.Lasting(t), []byte("second")); return err })
	suite.Wait(t, sent)
	time.Sleep(300 * time.Millisecond) // it is with the leader
	// The client goes on at the leader, which has the proposal but hasn't committed it.
	second.Heal()
	first.Cut()
	require.NoError(t, suite.Wait(t, offered))
	// The entry must be there once, although the client could not see it when it moved.
	leader.Delay(0)
	time.Sleep(time.Second)
	n := suite.Must(t, q.Len)
	require.Equal(t, 2, n, "entries")
	require.NoError(t, c.Close())
}

// endFullSession has each member start again after the end of a session that has no room left.
func endFullSession(t *testing.T, cluster *ensemble.Cluster) {
	c := connect(t, cluster.ConnectString())
	s := suite.Session(t, c)
	err := s.Create(suite.Lasting(t), "/full", nil, 0)
	require.NoError(t, err)
	// Fill the session until the client refuses another node.
	for i := 0; err == nil; i++ {
		err = s.Create(suite.Lasting(t), fmt.Sprintf("/full/%05d-%s", i, strings.Repeat("f", 900)), nil, zk.FlagEphemeral)
	}
	require.ErrorIs(t, err, protocol.ErrSessionFull)
	require.NoError(t, c.Close())
	// All members stop and read their logs again, with the end of that session in it.
	cluster.Restart()
	require.Empty(t, suite.Children(t, connect(t, cluster.ConnectString()), "/full"))
}

// deposeLeader has a holder connected to a leader that is deposed. No client may delete
// below the root, so such a leader refuses deletions there without asking other members.
func deposeLeader(t *testing.T, cluster *ensemble.Cluster) {
	cluster.WaitHealthy()
	s := suite.Session(t, connect(t, cluster.ConnectString()))
	suite.Ensure(t, s, "/app/lock")
	suite.Got(s.Conn().SetACL("/", zk.WorldACL(zk.PermRead|zk.PermCreate|zk.PermAdmin), -1))(t)
	toldFirst(t, cluster, cluster.Leader(), true, "/app/lock")
}
