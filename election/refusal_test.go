package election_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/election"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

const noAuth = -102 // the error code of a server

// The first transaction would have created a marker.
func TestResignToThatIsRefusedOnceStillChoosesItsCandidate(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link, onlooker := srv.Root(t)+"/e", srv.Link(t), srv.Client(t)
		var wait suite.Group
		leader := campaign(t, link.Client(t), path, "a")
		b := stand(t, onlooker, srv.Client(t), path, "b", 1, &wait)
		c := stand(t, onlooker, srv.Client(t), path, "c", 2, &wait)
		line := suite.Await(t, 3, election.New(onlooker, path).Candidates)
		link.Fail(recipestest.OpMulti, "", noAuth, 1)

		require.NoError(t, leader.ResignTo(t.Context(), line[2].Node))

		resign(t, next(t, c))
		resign(t, next(t, b))
		require.NoError(t, wait.Wait())
	})
}

func TestResignToThatIsRefusedEndsTheTermAllTheSame(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link, onlooker := srv.Root(t)+"/e", srv.Link(t), srv.Client(t)
		var wait suite.Group
		leader := campaign(t, link.Client(t), path, "a")
		b := stand(t, onlooker, srv.Client(t), path, "b", 1, &wait)
		c := stand(t, onlooker, srv.Client(t), path, "c", 2, &wait)
		line := suite.Await(t, 3, election.New(onlooker, path).Candidates)
		link.Fail(recipestest.OpMulti, "", noAuth, 2)

		require.ErrorIs(t, leader.ResignTo(t.Context(), line[2].Node), zk.ErrNoAuth)
		require.ErrorIs(t, leader.Err(), protocol.ErrReleased)

		resign(t, next(t, b))
		resign(t, next(t, c))
		require.NoError(t, wait.Wait())
	})
}

func TestResignToTakesThreeRequests(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link, onlooker := srv.Root(t)+"/e", srv.Link(t), srv.Client(t)
		var wait suite.Group
		leader := campaign(t, link.Client(t), path, "a")
		b := stand(t, onlooker, srv.Client(t), path, "b", 1, &wait)
		line := suite.Await(t, 2, election.New(onlooker, path).Candidates)
		time.Sleep(time.Second) // the leader watches its node
		before := link.Count(recipestest.OpAny)

		require.NoError(t, leader.ResignTo(t.Context(), line[1].Node))

		require.Equal(t, before+3, link.Count(recipestest.OpAny))
		resign(t, next(t, b))
		require.NoError(t, wait.Wait())
	})
}

// The chosen candidate leaves when the line was listed. The term then ends as by Resign.
func TestResignToACandidateThatLeavesSendsTwoTransactions(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link, gate, onlooker := srv.Root(t)+"/e", srv.Link(t), &suite.Gate{Op: recipestest.OpMulti}, srv.Client(t)
		e := election.New(onlooker, path)
		var wait suite.Group
		leader := campaign(t, link.Client(t, gate.Option(link)), path, "a")
		b := stand(t, onlooker, srv.Client(t), path, "b", 1, &wait)
		c := stand(t, onlooker, srv.Client(t), path, "c", 2, &wait)
		d := stand(t, onlooker, srv.Client(t), path, "d", 3, &wait)
		line := suite.Await(t, 4, e.Candidates)
		time.Sleep(time.Second) // the candidates watch their own nodes
		before := link.Count(recipestest.OpMulti)

		gate.Shut()
		resigned := suite.Later(func() error { return leader.ResignTo(t.Context(), line[3].Node) })
		synctest.Wait()
		require.True(t, gate.Holding())
		require.NoError(t, e.Break(t.Context(), line[3].Node))
		gate.Open()

		require.ErrorIs(t, suite.Wait(t, resigned), election.ErrNotInLine)
		require.Equal(t, before+2, link.Count(recipestest.OpMulti))
		for _, won := range []<-chan *election.Term{b, c, d} {
			resign(t, next(t, won))
		}
		require.NoError(t, wait.Wait())
	})
}

func TestResignToThatCannotSeeTheLineChangesNothing(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link, onlooker := srv.Root(t)+"/e", srv.Link(t), srv.Client(t)
		var wait suite.Group
		leader := campaign(t, link.Client(t), path, "a")
		b := stand(t, onlooker, srv.Client(t), path, "b", 1, &wait)
		line := suite.Await(t, 2, election.New(onlooker, path).Candidates)

		for _, op := range []recipestest.Op{recipestest.OpSync, recipestest.OpGetChildren} {
			link.Fail(op, path, noAuth, 1)
			require.ErrorIs(t, leader.ResignTo(t.Context(), line[1].Node), zk.ErrNoAuth)
			require.NoError(t, leader.Err())
		}

		require.NoError(t, leader.ResignTo(t.Context(), line[1].Node))
		resign(t, next(t, b))
		require.NoError(t, wait.Wait())
	})
}

// The leader has not heard of the deletion yet.
func TestResignToOfATermWhoseNodeWasJustDeleted(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, gate, link, onlooker := srv.Root(t)+"/e", &suite.Gate{Op: recipestest.OpGetData}, srv.Link(t), srv.Client(t)
		e := election.New(onlooker, path)
		var wait suite.Group
		gate.Shut() // so the term's node is not watched
		leader := campaign(t, link.Client(t, gate.Option(link)), path, "a")
		b := stand(t, onlooker, srv.Client(t), path, "b", 1, &wait)
		c := stand(t, onlooker, srv.Client(t), path, "c", 2, &wait)
		line := suite.Await(t, 3, e.Candidates)
		require.NoError(t, e.Break(t.Context(), leader.Node()))
		require.NoError(t, leader.Err())

		require.ErrorIs(t, leader.ResignTo(t.Context(), line[2].Node), protocol.ErrLost)

		require.ErrorIs(t, leader.Err(), protocol.ErrLost)
		require.Equal(t, line[1:], suite.Await(t, 2, e.Candidates))
		resign(t, next(t, b))
		resign(t, next(t, c))
		require.NoError(t, wait.Wait())
	})
}

func TestResignToOfATermThatIsOverReturnsAtOnce(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link := srv.Root(t)+"/e", srv.Link(t)
		term := campaign(t, link.Client(t), path, "a")
		resign(t, term)
		link.Cut() // no server could answer
		require.ErrorIs(t, term.ResignTo(suite.Within(t, time.Second), "b"), protocol.ErrReleased)
	})
}

// The next candidate may be read, but does not lead.
func TestLeaderThatCannotBeReadIsAnError(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link, onlooker := srv.Root(t)+"/e", srv.Link(t), srv.Client(t)
		var wait suite.Group
		term := campaign(t, srv.Client(t), path, "a")
		b := stand(t, onlooker, srv.Client(t), path, "b", 1, &wait)
		link.Fail(recipestest.OpGetData, path+"/"+term.Node(), noAuth, 1)

		_, err := election.New(link.Client(t), path).Leader(t.Context())

		require.ErrorIs(t, err, zk.ErrNoAuth)
		resign(t, term)
		resign(t, next(t, b))
		require.NoError(t, wait.Wait())
	})
}

// The observers of a client share their requests, and so the refusal of one.
func TestObserversEndWhenTheSyncOfANewOneIsRefused(t *testing.T) {
	for _, vacant := range []bool{false, true} {
		t.Run(fmt.Sprintf("vacant=%t", vacant), func(t *testing.T) {
			suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
				path, link := srv.Root(t)+"/e", srv.Link(t)
				e := election.New(link.Client(t), path)
				term := campaign(t, srv.Client(t), path, "a")
				if vacant {
					resign(t, term)
				}
				first := observed(t, t.Context(), e)
				next(t, first)

				link.Fail(recipestest.OpSync, path, noAuth, 1)
				second := observed(t, t.Context(), e)

				for _, changes := range []<-chan string{first, second} {
					require.Contains(t, next(t, changes), zk.ErrNoAuth.Error())
				}
				if !vacant {
					resign(t, term)
				}
			})
		})
	}
}
