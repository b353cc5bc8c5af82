package protocol_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/queue"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

// A leader that was deposed and checks ACLs by itself refuses what the client may not do, and is no
// quorum. In a hardened root everybody may create an application, and delete none.
func TestDeposedLeaderThatChecksACLsEagerlyProvesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := recipestest.Start(t, recipestest.WithInMemory(), recipestest.WithConfigFunc(func(cfg *embedded.Config) { cfg.EagerACL = true }))
		s := session(t, srv.Client(t))
		_, err := s.EnsurePath(lasting(t), "/app/lock")
		require.NoError(t, err)
		_, err = s.Conn().SetACL("/", zk.WorldACL(zk.PermRead|zk.PermCreate|zk.PermAdmin), -1)
		require.NoError(t, err)

		link, leader := srv.Link(t), srv.Embedded().Follower()
		link.Move(leader)
		c := link.Client(t)
		g := hold(t, c, "/app/lock")
		timeout := g.Session().Timeout()
		time.Sleep(5 * timeout)
		require.NoError(t, g.Err())

		deposed := time.Now()
		leader.Depose()
		<-g.Done()
		require.ErrorIs(t, g.Err(), protocol.ErrLost)
		require.LessOrEqual(t, time.Since(deposed), timeout)
		leader.Rejoin()
		_, err = s.Conn().SetACL("/", zk.WorldACL(zk.PermAll), -1)
		require.NoError(t, err)
	})
}

// A write goes through one member and takes a while to commit. The session goes on at another one,
// which answers syncs at once. What the write does must not be done twice, nor be left behind.
func TestWriteThatIsCommittedLateIsDoneOnce(t *testing.T) {
	for name, c := range map[string]struct {
		op  recipestest.Op
		try func(t *testing.T, c *protocol.Client, g *recipe.Grant, path string)
	}{
		"own node": {recipestest.OpCreate, func(t *testing.T, c *protocol.Client, _ *recipe.Grant, path string) {
			s := session(t, c)
			own, err := s.CreateOwn(lasting(t), recipe.OwnNode{Dir: path, Prefix: s.NewOwner().String() + "-x-"})
			require.NoError(t, err)
			time.Sleep(10 * time.Second)
			names, _, err := s.Children(lasting(t), path)
			require.NoError(t, err)
			require.Len(t, names, 2, "this node, and what is held")
			require.NoError(t, own.Withdraw(lasting(t)))
		}},
		"data": {recipestest.OpSetData, func(t *testing.T, c *protocol.Client, g *recipe.Grant, path string) {
			require.NoError(t, g.SetData(lasting(t), []byte("new")))
			time.Sleep(10 * time.Second)
			_, stat, err := session(t, c).Get(lasting(t), path+"/"+g.Node())
			require.NoError(t, err)
			require.EqualValues(t, 1, stat.Version)
		}},
		"offer": {recipestest.OpMulti, func(t *testing.T, c *protocol.Client, _ *recipe.Grant, path string) {
			q := queue.New(c, path+"-queue")
			_, err := q.Offer(lasting(t), []byte("x"))
			require.NoError(t, err)
			time.Sleep(10 * time.Second)
			n, err := q.Len(lasting(t))
			require.NoError(t, err)
			require.Equal(t, 2, n, "this one, and one before")
			for range 2 {
				_, err = q.Poll(lasting(t))
				require.NoError(t, err)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *recipestest.Server) {
				path, link := srv.Root(t)+"/line", srv.Link(t)
				first, second := srv.Embedded().Follower(), srv.Embedded().Follower()
				second.AnswerSyncsAtOnce()
				link.Move(first)
				client := link.Client(t)
				g := hold(t, client, path)
				if c.op == recipestest.OpMulti {
					_, err := queue.New(client, path+"-queue").Offer(lasting(t), nil)
					require.NoError(t, err)
				}
				time.Sleep(time.Minute)

				first.Lag(200 * time.Millisecond)
				second.Lag(200 * time.Millisecond)
				sent := link.Sent(c.op, link.Count(c.op)+1)
				go func() {
					<-sent
					time.Sleep(10 * time.Millisecond)
					link.Move(second)
					link.Cut()
					link.Heal()
				}()
				c.try(t, client, g, path)
				first.Lag(0)
				second.Lag(0)
				release(t, g)
				require.NoError(t, client.Close())
			})
		})
	}
}
