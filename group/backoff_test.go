package group_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/group"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// impatient returns a view of the client whose back-off ends at the first pause.
func impatient(c *protocol.Client) *protocol.Client {
	return c.With(protocol.WithBackOff(func() backoff.BackOff { return &backoff.StopBackOff{} }))
}

// The server may lag behind others as long as it has not answered the Sync.
func TestMembersAreNotListedWithoutASync(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link := srv.Root(t)+"/g", srv.Link(t)
		g, m := group.New(impatient(link.Client(t)), path), join(t, group.New(srv.Client(t), path), "a", "")

		link.LoseReply(recipestest.OpSync, 1)
		_, err := g.Members(t.Context())
		require.ErrorIs(t, err, zk.ErrConnectionClosed)

		link.LoseReply(recipestest.OpSync, 1)
		for peers, err := range g.Watch(t.Context()) {
			require.Empty(t, peers)
			require.ErrorIs(t, err, zk.ErrConnectionClosed)
		}
		require.Equal(t, []string{"a="}, members(t, g))
		leave(t, m)
	})
}

// A session that was of use is followed by the next one without a pause of the back-off.
func TestWatchThatHasYieldedGoesOnWithoutAPause(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, c := srv.Root(t)+"/g", srv.Client(t)
		g := group.New(srv.Client(t), path)
		m := join(t, g, "a", "")
		next := watch(t, group.New(impatient(c), path))
		until(t, next, "a=")

		s := suite.Session(t, c)
		srv.ExpireSession(s.ID())
		<-s.Done()
		other := join(t, g, "b", "")

		until(t, next, "a=", "b=")
		leave(t, m, other)
	})
}

// A session that has yielded nothing was of no use, so the back-off decides what comes next.
func TestWatchWithoutAnyYieldEndsWithItsBackOff(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link := srv.Link(t)
		looks := &suite.Gate{Op: recipestest.OpExists} // the group does not exist
		c := link.Client(t, looks.Option(link))
		s := suite.Session(t, c)
		looks.Shut()
		ended := suite.Later(func() (last error) {
			for _, err := range group.New(impatient(c), srv.Root(t)+"/g").Watch(suite.Within(t, time.Hour)) {
				last = err
			}
			return last
		})
		synctest.Wait()
		require.True(t, looks.Holding())

		srv.ExpireSession(s.ID())

		require.ErrorIs(t, suite.Wait(t, ended), protocol.ErrLost)
		looks.Open()
	})
}

// The session is lost while the member joins again, and the client cannot open another one.
func TestMemberLeavesWhileThereIsNoSession(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link, creates := srv.Root(t)+"/g", srv.Link(t), &suite.Gate{Op: recipestest.OpCreate}
		suite.Keep(t, srv.Client(t), path)
		c, operator := link.Client(t, creates.Option(link)), suite.Session(t, srv.Client(t))
		m := join(t, group.New(impatient(c), path), "a", "")
		time.Sleep(time.Second) // the node is watched
		creates.Shut()
		require.NoError(t, operator.Delete(t.Context(), path+"/a", -1))
		joined(t, m, false)
		synctest.Wait()
		require.True(t, creates.Holding())
		lost := suite.Session(t, c)
		link.Cut()
		suite.Wait(t, lost.Done())
		time.Sleep(time.Second)

		left := suite.Later(func() error { return m.Leave(suite.Within(t, time.Hour)) })
		time.Sleep(time.Second)
		creates.Open()
		link.Heal()

		require.NoError(t, suite.Wait(t, left))
		leave(t, join(t, group.New(c, path), "a", ""))
	})
}
