package real_test

import (
	"context"
	"errors"
	"fmt"
	"net"
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
	first := recipestest.Attach(t, follower.ConnectString()).Link(t)
	second := recipestest.Attach(t, leader.ConnectString()).Link(t)
	second.Cut()
	links := map[string]*recipestest.Link{follower.ConnectString(): first, leader.ConnectString(): second}
	c := connect(t, cluster.ConnectString(), protocol.WithDialer(func(network, address string, timeout time.Duration) (net.Conn, error) {
		if link := links[address]; link != nil {
			return link.Dial(network, address, timeout)
		}
		return nil, errors.New("out of reach")
	}))
	q := queue.New(c, path)
	_, err := q.Offer(suite.Lasting(t), []byte("first"))
	require.NoError(t, err)

	leader.Delay(200 * time.Millisecond)
	time.Sleep(100 * time.Millisecond)
	sent := first.Sent(recipestest.OpMulti, first.Count(recipestest.OpMulti)+1)
	offered := suite.Later(func() error { _, err := q.Offer(suite.Lasting(t), []byte("second")); return err })
	suite.Wait(t, sent)
	time.Sleep(300 * time.Millisecond) // it is with the leader
	second.Heal()
	first.Cut()
	require.NoError(t, suite.Wait(t, offered))
	leader.Delay(0)
	time.Sleep(time.Second)
	n, err := q.Len(suite.Lasting(t))
	require.NoError(t, err)
	require.Equal(t, 2, n, "entries")
	require.NoError(t, c.Close())
}

// endFullSession has each member start again after the end of a session that has no room left.
func endFullSession(t *testing.T, cluster *ensemble.Cluster) {
	c := connect(t, cluster.ConnectString())
	s := suite.Session(t, c)
	err := s.Create(suite.Lasting(t), "/full", nil, 0)
	require.NoError(t, err)
	for i := 0; err == nil; i++ {
		err = s.Create(suite.Lasting(t), fmt.Sprintf("/full/%05d-%s", i, strings.Repeat("f", 900)), nil, zk.FlagEphemeral)
	}
	require.ErrorIs(t, err, protocol.ErrSessionFull)
	require.NoError(t, c.Close())
	for _, m := range cluster.Members() {
		m.Stop()
	}
	for _, m := range cluster.Members() {
		m.Start()
	}
	cluster.WaitHealthy()
	left, _, err := suite.Session(t, connect(t, cluster.ConnectString())).Children(suite.Lasting(t), "/full")
	require.NoError(t, err)
	require.Empty(t, left)
}

// deposeLeader has a holder connected to a leader that is deposed. Nobody may delete anything below
// the root, so such a leader refuses deletions there without asking anybody.
func deposeLeader(t *testing.T, cluster *ensemble.Cluster) {
	const timeout = 2 * time.Second
	cluster.WaitHealthy()
	s := suite.Session(t, connect(t, cluster.ConnectString()))
	_, err := s.EnsurePath(suite.Lasting(t), "/app/lock")
	require.NoError(t, err)
	_, err = s.Conn().SetACL("/", zk.WorldACL(zk.PermRead|zk.PermCreate|zk.PermAdmin), -1)
	require.NoError(t, err)

	isolated := cluster.Leader()
	var others []*ensemble.Member
	var addresses []string
	for _, m := range cluster.Members() {
		if m != isolated {
			others, addresses = append(others, m), append(addresses, m.ConnectString())
		}
	}
	g := hold(t, connect(t, isolated.ConnectString(), protocol.WithSessionTimeout(timeout)), "/app/lock")
	waiting := connect(t, strings.Join(addresses, ","), protocol.WithSessionTimeout(timeout))
	next := suite.Later(func() error {
		if _, err := lineAt(waiting, "/app/lock").Enter(context.Background(), request); err != nil {
			return err
		}
		return g.Err()
	})
	time.Sleep(2 * timeout)
	require.NoError(t, g.Err())
	isolated.Isolate()
	for _, m := range others {
		m.Stop()
	}
	for _, m := range others {
		m.Start()
	}
	require.ErrorIs(t, suite.Wait(t, next), protocol.ErrLost, "two hold it")
	isolated.Rejoin()
}
