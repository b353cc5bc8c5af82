package real_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/election"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/recipestest/ensemble"
)

// TestTrustOnAnEnsemble is one test, for the start of an ensemble is what takes long.
func TestTrustOnAnEnsemble(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	t.Parallel()
	cluster := ensemble.Start(t, 3, ensemble.WithConfig("maxSessionTimeout=20000"))
	servers := cluster.Server(t)
	aFollower := func() *ensemble.Member { return cluster.Followers()[0] }
	for _, c := range []struct {
		name     string
		isolated func() *ensemble.Member
		restart  bool
	}{
		{"HolderOnAnIsolatedFollowerIsToldBeforeTheNextHasTheLock", aFollower, false},
		{"HolderOnAnIsolatedLeaderIsToldBeforeTheNextHasTheLock", cluster.Leader, false},
		{"HolderOnADeposedLeaderIsToldBeforeTheNextHasTheLock", cluster.Leader, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			cluster.WaitHealthy()
			toldFirst(t, cluster, c.isolated(), c.restart, servers.Root(t))
		})
	}

	t.Run("HolderOutlivesTheDeathOfItsServer", func(t *testing.T) {
		cluster.WaitHealthy()
		root := servers.Root(t)
		c := servers.Client(t, protocol.WithSessionTimeout(10*time.Second))
		// The holder keeps its session if the others agree on a leader within its timeout.
		outlives := func(m *ensemble.Member) bool {
			g := suite.Hold(t, c, root)
			m.Stop()
			begin := time.Now()
			_, err := election.New(c, root).Leader(suite.Lasting(t)) // under this session or the next
			if !errors.Is(err, election.ErrNoLeader) {
				require.NoError(t, err)
			}
			away := time.Since(begin)
			m.Start()
			cluster.WaitHealthy()
			if g.Err() != nil {
				require.Greater(t, away, 10*time.Second/3, "the others have agreed in time")
				return false
			}
			suite.Release(t, g)
			return true
		}
		for _, m := range cluster.Members() {
			survived := false
			for range 3 {
				survived = survived || outlives(m)
			}
			require.True(t, survived, "the others take too long to agree each time")
		}
	})

	t.Run("NodesOfASessionLostInAnOutageAreDeletedAfterIt", func(t *testing.T) {
		cluster.WaitHealthy()
		root := servers.Root(t)
		link := servers.Link(t)
		c := link.Client(t, protocol.WithSessionTimeout(20*time.Second))
		g := suite.Hold(t, c, root)
		// No server is left to close the session.
		for _, m := range cluster.Members() {
			m.Stop()
		}
		suite.Wait(t, g.Done())
		// A member that starts hangs up, and then the client leaves its lost session alone for
		// long.
		link.Cut()
		cluster.Restart()
		link.Heal()
		// The client closes its lost session before it asks for the lock again.
		next := suite.Hold(t, c, root)
		require.Equal(t, 1, link.Count(recipestest.OpClose), "the servers would have kept it for twenty seconds")
		require.Greater(t, next.Token(), g.Token())
		suite.Release(t, next)
	})

	// What was sent to one follower is on its way still when the session is resumed on the other
	// one.
	t.Run("OneNodeThoughAnotherServerHidesTheFirst", func(t *testing.T) {
		cluster.WaitHealthy()
		root, observer := servers.Root(t), servers.Client(t)
		var followers []*ensemble.Member
		// The slow follower gets the create, and the fast follower gets the resumed session.
		suite.Soon(t, func() bool { followers = cluster.Followers(); return len(followers) == 2 }, "two follow")
		slow, fast := followers[0], followers[1]
		slow.Delay(150 * time.Millisecond)
		defer slow.Delay(0)
		for i := range 5 {
			c, first, second := connectAcross(t, cluster, slow, fast, protocol.WithSessionTimeout(10*time.Second))
			path := fmt.Sprintf("%s/%d", root, i)
			suite.Ensure(t, suite.Session(t, c), path)
			created := first.Sent(recipestest.OpCreate, first.Count(recipestest.OpCreate)+1)
			held := suite.Later(func() *recipe.Grant {
				g, err := suite.LineAt(c, path).Enter(context.Background(), suite.Request)
				if err != nil {
					t.Error(err)
				}
				return g
			})
			// The create is on its way when the session moves.
			suite.Wait(t, created)
			time.Sleep(20 * time.Millisecond) // on its way to the leader
			second.Heal()
			first.Cut()
			g := suite.Wait(t, held)
			require.NotNil(t, g)
			// By now the first create has arrived, too. There must be one node.
			time.Sleep(500 * time.Millisecond)
			suite.CatchUp(t, observer)
			require.Equal(t, []string{g.Node()}, suite.Children(t, observer, path))
			suite.Release(t, g)
			require.NoError(t, suite.TryClose(c))
		}
	})
}

// toldFirst isolates the member that a holder is connected to (over a sound link). The holder must
// be told before a waiter at the other members is granted the lock. With restart the others elect a
// leader before the old one has noticed anything.
func toldFirst(t *testing.T, cluster *ensemble.Cluster, isolated *ensemble.Member, restart bool, path string) {
	const timeout = 2 * time.Second
	type grant struct {
		at   time.Time
		held error // what the last holder says at that moment
		err  error
	}
	others, connectString := without(cluster, isolated)
	g := suite.Hold(t, connect(t, isolated.ConnectString(), protocol.WithSessionTimeout(timeout)), path)
	waiting := connect(t, connectString, protocol.WithSessionTimeout(timeout))
	next := suite.Later(func() grant {
		next, err := suite.LineAt(waiting, path).Enter(context.Background(), suite.Request)
		held, at := g.Err(), time.Now()
		if err == nil {
			err = next.Release(context.Background())
		}
		return grant{at, held, err}
	})
	// The holder keeps its lock while nothing is broken.
	time.Sleep(2 * timeout)
	require.NoError(t, g.Err())
	begin := time.Now()
	isolated.Isolate()
	if restart {
		for _, m := range others { // all stop before the first starts
			m.Stop()
		}
		for _, m := range others {
			m.Start()
		}
		suite.Soon(t, func() bool { return cluster.Leader() != isolated }, "another one leads")
	}

	// The holder's trust ends, and only then may the waiter be granted the lock.
	suite.Wait(t, g.Done())
	lost := time.Now()
	require.ErrorIs(t, g.Err(), protocol.ErrLost)
	granted := suite.Wait(t, next)
	isolated.Rejoin()
	cluster.WaitHealthy()
	require.NoError(t, granted.err)
	require.ErrorIs(t, granted.held, protocol.ErrLost, "two hold it")
	t.Logf("lost after %v, granted to the next after %v", lost.Sub(begin), granted.at.Sub(begin))
}
