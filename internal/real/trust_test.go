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
	const timeout = 2 * time.Second
	cluster := ensemble.Start(t, 3, ensemble.WithConfig("maxSessionTimeout=20000"))
	servers := cluster.Server(t)

	// The holder is connected to the member that is cut off from all others, over a sound link.
	type grant struct {
		at   time.Time
		held error // what the last holder says at that moment
		err  error
	}
	aFollower := func() *ensemble.Member { return cluster.Followers()[0] }
	for _, c := range []struct {
		name     string
		isolated func() *ensemble.Member
		restart  bool // of the others, which then elect a leader before the old one has noticed anything
	}{
		{"HolderOnAnIsolatedFollowerIsToldBeforeTheNextHasTheLock", aFollower, false},
		{"HolderOnAnIsolatedLeaderIsToldBeforeTheNextHasTheLock", cluster.Leader, false},
		{"HolderOnADeposedLeaderIsToldBeforeTheNextHasTheLock", cluster.Leader, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			cluster.WaitHealthy()
			root, isolated := servers.Root(t), c.isolated()
			var others []*ensemble.Member
			var addresses []string
			for _, m := range cluster.Members() {
				if m != isolated {
					others, addresses = append(others, m), append(addresses, m.ConnectString())
				}
			}
			client := func(connectString string) *protocol.Client {
				return recipestest.Attach(t, connectString).Client(t, protocol.WithSessionTimeout(timeout))
			}
			g, waiting := hold(t, client(isolated.ConnectString()), root), client(strings.Join(addresses, ","))
			next := suite.Later(func() grant {
				next, err := lineAt(waiting, root).Enter(context.Background(), request)
				held, at := g.Err(), time.Now()
				if err == nil {
					err = next.Release(context.Background())
				}
				return grant{at, held, err}
			})
			time.Sleep(timeout) // in the middle of everything
			begin := time.Now()
			isolated.Isolate()
			if c.restart {
				for _, m := range others {
					m.Stop()
				}
				for _, m := range others {
					m.Start()
				}
				suite.Soon(t, func() bool { return cluster.Leader() != isolated }, "another one leads")
			}
			suite.Wait(t, g.Done())
			lost := time.Now()
			require.ErrorIs(t, g.Err(), protocol.ErrLost)
			granted := suite.Wait(t, next)
			isolated.Rejoin()
			cluster.WaitHealthy()
			require.NoError(t, granted.err)
			require.ErrorIs(t, granted.held, protocol.ErrLost, "two hold it")
			t.Logf("lost after %v, granted to the next after %v", lost.Sub(begin), granted.at.Sub(begin))
		})
	}

	t.Run("HolderOutlivesTheDeathOfItsServer", func(t *testing.T) {
		cluster.WaitHealthy()
		root := servers.Root(t)
		c := servers.Client(t, protocol.WithSessionTimeout(10*time.Second))
		outlives := func(m *ensemble.Member) bool {
			g := hold(t, c, root)
			m.Stop()
			away := took(func() {
				_, err := election.New(c, root).Leader(suite.Lasting(t)) // under this session or the next
				if !errors.Is(err, election.ErrNoLeader) {
					require.NoError(t, err)
				}
			})
			m.Start()
			cluster.WaitHealthy()
			if g.Err() != nil {
				require.Greater(t, away, 10*time.Second/3, "the others have agreed in time")
				return false
			}
			require.NoError(t, g.Release(suite.Lasting(t)))
			return true
		}
		for _, m := range cluster.Members() {
			require.True(t, inThree(func() bool { return outlives(m) }), "the others take too long to agree each time")
		}
	})

	t.Run("NodesOfASessionLostInAnOutageAreDeletedAfterIt", func(t *testing.T) {
		cluster.WaitHealthy()
		root := servers.Root(t)
		link := servers.Link(t)
		c := link.Client(t, protocol.WithSessionTimeout(20*time.Second))
		g := hold(t, c, root)
		for _, m := range cluster.Members() {
			m.Stop()
		}
		suite.Wait(t, g.Done())
		cluster.Restart()
		next := hold(t, c, root)
		require.Equal(t, 1, link.Count(recipestest.OpClose), "the servers would have kept it for twenty seconds")
		require.Greater(t, next.Token(), g.Token())
		require.NoError(t, next.Release(suite.Lasting(t)))
	})

	// What was sent to one follower is on its way still when the session is resumed on the other
	// one.
	t.Run("OneNodeThoughAnotherServerHidesTheFirst", func(t *testing.T) {
		cluster.WaitHealthy()
		root, observer := servers.Root(t), suite.Session(t, servers.Client(t))
		var followers []*ensemble.Member
		suite.Soon(t, func() bool { followers = cluster.Followers(); return len(followers) == 2 }, "two follow")
		slow, fast := followers[0], followers[1]
		slow.Delay(150 * time.Millisecond)
		defer slow.Delay(0)
		for i := range 5 {
			first := recipestest.Attach(t, slow.ConnectString()).Link(t)
			second := recipestest.Attach(t, fast.ConnectString()).Link(t)
			servers := map[string]*recipestest.Link{slow.ConnectString(): first, fast.ConnectString(): second}
			second.Cut()
			c := connect(t, cluster.ConnectString(), protocol.WithSessionTimeout(10*time.Second),
				protocol.WithDialer(func(network, address string, timeout time.Duration) (net.Conn, error) {
					if link := servers[address]; link != nil {
						return link.Dial(network, address, timeout)
					}
					return nil, errors.New("the leader is out of reach")
				}))
			path := fmt.Sprintf("%s/%d", root, i)
			_, err := suite.Session(t, c).EnsurePath(suite.Lasting(t), path)
			require.NoError(t, err)
			created := first.Sent(recipestest.OpCreate, first.Count(recipestest.OpCreate)+1)
			held := suite.Later(func() *recipe.Grant {
				g, err := lineAt(c, path).Enter(context.Background(), request)
				if err != nil {
					t.Error(err)
				}
				return g
			})
			suite.Wait(t, created)
			time.Sleep(20 * time.Millisecond) // on its way to the leader
			second.Heal()
			first.Cut()
			g := suite.Wait(t, held)
			require.NotNil(t, g)
			time.Sleep(500 * time.Millisecond)
			children, err := recipe.Do(suite.Lasting(t), observer, func(conn *zk.Conn) ([]string, error) {
				if _, err := conn.Sync(observer.Path(path)); err != nil {
					return nil, err
				}
				children, _, err := conn.Children(observer.Path(path))
				return children, err
			})
			require.NoError(t, err)
			require.Equal(t, []string{g.Node()}, children)
			require.NoError(t, g.Release(suite.Lasting(t)))
			require.NoError(t, suite.TryClose(c))
		}
	})
}
