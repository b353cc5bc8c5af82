package group_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/group"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// The answer to the deletion is lost, and the next server does not know yet that the node is gone.
// Another process has taken the name meanwhile. The deletion is not repeated.
func TestLeaveOverAServerThatLagsDoesNotDeleteTheNextMemberOfTheName(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link, follower := srv.Root(t)+"/g", srv.Link(t), srv.Embedded().Follower()
		other := group.New(srv.Client(t), path)
		m := join(t, group.New(link.Client(t), path), "a", "")
		follower.Lag(time.Second)
		link.Move(follower)

		link.LoseReply(recipestest.OpDelete, 1)
		deleted := link.Sent(recipestest.OpDelete, link.Count(recipestest.OpDelete)+1)
		left := suite.Later(func() error { return m.Leave(t.Context()) })
		suite.Wait(t, deleted)
		time.Sleep(time.Millisecond) // less than it takes to reconnect
		next := join(t, other, "a", "")
		require.NoError(t, <-left)
		time.Sleep(time.Minute)
		require.Empty(t, next.Changes(), "deleted")
		leave(t, next)
	})
}

// A server that does not answer is left soon enough to join over another one with the same session.
func TestJoinLeavesAServerThatDoesNotAnswer(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link, follower := srv.Link(t), srv.Embedded().Follower()
		link.Move(follower)
		c := link.Client(t)
		session := suite.Session(t, c)
		link.Move(nil)
		follower.Isolate()

		ctx := suite.Within(t, session.Timeout()/2)
		m, err := group.New(c, srv.Root(t)+"/g").Join(ctx, "a", nil)
		require.NoError(t, err)
		require.Equal(t, session, suite.Session(t, c))
		leave(t, m)
	})
}

// An observer keeps what it is told.
type observer chan protocol.Event

func (o observer) Observe(e protocol.Event) { o <- e }

func TestObserverIsToldOfAwait(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		told := make(observer, 10)
		g := group.New(srv.Client(t, protocol.WithObserver(told)), srv.Root(t)+"/g")
		_, err := g.Await(t.Context(), 0)
		require.NoError(t, err)
		require.Equal(t, protocol.EventWaiting, suite.Wait(t, told).Kind)
		require.Equal(t, protocol.EventAcquired, suite.Wait(t, told).Kind)
	})
}

func TestMembersOfALargeGroup(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		g := group.New(srv.Client(t), srv.Root(t)+"/g")
		var all []*group.Member
		for i := range 50 {
			all = append(all, join(t, g, string(rune('A'+i)), ""))
		}
		require.Len(t, members(t, g), len(all))
		leave(t, all...)
	})
}
