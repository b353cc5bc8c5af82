package election_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/election"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/once"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// A candidate leaves when the line was listed. If it is the chosen one, the term ends as by Resign,
// and otherwise the chosen one leads all the same.
func TestResignToWhileACandidateLeaves(t *testing.T) {
	for leaver, want := range map[int]error{1: nil, 2: nil, 3: election.ErrNotInLine} {
		t.Run(fmt.Sprint(leaver), func(t *testing.T) {
			suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
				path, link, gate, onlooker := srv.Root(t)+"/e", srv.Link(t), &suite.Gate{Op: recipestest.OpMulti}, srv.Client(t)
				e := election.New(onlooker, path)
				var wait suite.Group
				leader := campaign(t, link.Client(t, gate.Option(link)), path, "a")
				var won []<-chan *election.Term
				for i, name := range []string{"b", "c", "d"} {
					won = append(won, stand(t, onlooker, srv.Client(t), path, name, i+1, &wait))
				}
				line := suite.Await(t, 4, e.Candidates)
				time.Sleep(time.Second) // the candidates watch their own nodes
				before := link.Count(recipestest.OpMulti)

				gate.Shut()
				resigned := suite.Later(func() error { return leader.ResignTo(t.Context(), line[3].Node) })
				synctest.Wait()
				require.True(t, gate.Holding())
				require.NoError(t, e.Break(t.Context(), line[leaver].Node))
				gate.Open()

				first := 2
				if want != nil {
					first = 0
				}
				require.ErrorIs(t, suite.Wait(t, resigned), want)
				require.Equal(t, before+2, link.Count(recipestest.OpMulti))
				resign(t, next(t, won[first]))
				for _, other := range slices.Delete(won, first, first+1) {
					wait.Go(func() error { return next(t, other).Resign(t.Context()) })
				}
				require.NoError(t, wait.Wait())
			})
		})
	}
}

func TestProclaimChangesTheValue(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/proclaim"
		link := srv.Link(t)
		c := link.Client(t)
		e := election.New(srv.Client(t), path)
		term := campaign(t, c, path, "one")

		for _, value := range []string{"two", "", "two", "two"} {
			require.NoError(t, term.Proclaim(t.Context(), []byte(value)))
			l, err := e.Leader(t.Context())
			require.NoError(t, err)
			require.Equal(t, value, string(l.Value))
			require.Equal(t, term.Token(), l.Token)
		}

		link.LoseReply(recipestest.OpSetData, 2)
		require.NoError(t, term.Proclaim(t.Context(), []byte("three")))
		l, err := e.Leader(t.Context())
		require.NoError(t, err)
		require.Equal(t, "three", string(l.Value))
		require.NoError(t, term.Err())

		require.ErrorIs(t, term.Proclaim(t.Context(), make([]byte, recipe.MaxData)), protocol.ErrTooLarge)
		dead, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, term.Proclaim(dead, nil), context.Canceled)
		resign(t, term)
		require.ErrorIs(t, term.Proclaim(t.Context(), []byte("late")), protocol.ErrReleased)

		term = campaign(t, c, path, "four")
		require.NoError(t, e.Break(t.Context(), term.Node()))
		require.ErrorIs(t, term.Proclaim(t.Context(), []byte("late")), protocol.ErrLost)
		require.ErrorIs(t, term.Err(), protocol.ErrLost)
	})
}

// A Proclaim whose caller gave up is still on its way when the next one is made. It must not undo
// the next one.
func TestAbandonedProclaimDoesNotUndoALaterOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := recipestest.Start(t, recipestest.WithInMemory())
		path := srv.Root(t) + "/late"
		link := srv.Link(t)
		term := campaign(t, link.Client(t), path, "one")
		e := election.New(srv.Client(t), path)
		time.Sleep(time.Second)
		link.Delay(100 * time.Millisecond)

		for range 20 {
			short, cancel := context.WithTimeout(t.Context(), 250*time.Millisecond) // the second request is on its way
			require.ErrorIs(t, term.Proclaim(short, []byte("given up")), context.DeadlineExceeded)
			cancel()
			require.NoError(t, term.Proclaim(t.Context(), []byte("wanted")))
			time.Sleep(time.Second)
			l, err := e.Leader(t.Context())
			require.NoError(t, err)
			require.Equal(t, "wanted", string(l.Value))
		}

		link.Delay(0)
		resign(t, term)
	})
}

func TestResignToAChosenCandidate(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/chosen"
		onlooker := srv.Client(t)
		e := election.New(onlooker, path)
		links := make([]*recipestest.Link, 5)
		won := make([]<-chan *election.Term, 5)
		var wait suite.Group
		for i := range links {
			links[i] = srv.Link(t)
			won[i] = stand(t, onlooker, links[i].Client(t), path, fmt.Sprint(i), i, &wait)
		}

		leader := next(t, won[0])
		line := suite.Await(t, 5, e.Candidates)
		<-links[3].Answered(recipestest.OpGetData, 2) // it waits
		<-links[3].Answered(recipestest.OpExists, 1)
		listings := links[3].Count(recipestest.OpGetChildren)
		require.NoError(t, leader.ResignTo(t.Context(), line[3].Node))
		require.ErrorIs(t, leader.Err(), protocol.ErrReleased)
		term := next(t, won[3])
		require.Greater(t, term.Token(), leader.Token())
		<-links[3].Answered(recipestest.OpEvent, 2) // the marker and the predecessor's deletion, or after a reconnect
		events, listings := links[3].Events(), links[3].Count(recipestest.OpGetChildren)-listings
		if n := again(t, links[3]); n == 0 {
			require.Equal(t, 2, events, "one notification")
			require.Zero(t, listings, "the notification suffices")
		} else {
			require.LessOrEqual(t, events, 2+n)
			require.LessOrEqual(t, listings, 1+2*n)
		}

		require.Zero(t, links[4].Events(), "candidates behind the chosen one are not woken")

		require.Eventually(t, func() bool {
			line, err := e.Candidates(t.Context())
			return err == nil && len(line) == 4
		}, suite.Limit, time.Millisecond, "the candidates passed over are back")

		line = suite.Await(t, 4, e.Candidates)
		require.Equal(t, []string{"3", "4"}, values(line[:2]))
		require.ElementsMatch(t, []string{"1", "2"}, values(line[2:]))

		require.NoError(t, term.ResignTo(t.Context(), line[1].Node), "the next one")
		last := term.Token()

		for _, c := range line[1:] {
			var i int
			fmt.Sscan(string(c.Value), &i)
			term := next(t, won[i])
			require.Greater(t, term.Token(), last)
			last = term.Token()
			resign(t, term)
		}

		require.NoError(t, wait.Wait())
	})
}

func TestResignToAnUnfitCandidateChangesNothing(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/refused"
		c := srv.Client(t)
		e := election.New(c, path)
		term := campaign(t, c, path, "leader")
		var wait suite.Group
		conn := suite.Session(t, srv.Client(t)).Conn()
		strange, err := conn.Create(path+"/_c_0123456789abcdef-lock-", nil, zk.FlagEphemeralSequential, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
		won := stand(t, c, srv.Client(t), path, "b", 2, &wait)
		line := suite.Await(t, 3, e.Candidates)

		for _, node := range []string{"", "unknown", term.Node()} {
			require.ErrorIs(t, term.ResignTo(t.Context(), node), election.ErrNotInLine)
		}

		err = term.ResignTo(t.Context(), line[2].Node)
		require.ErrorIs(t, err, election.ErrForeignContender)
		require.ErrorContains(t, err, "election: "+path)
		dead, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, term.ResignTo(dead, line[2].Node), context.Canceled)
		require.NoError(t, term.Err())
		require.Equal(t, line, suite.Await(t, 3, e.Candidates))

		require.NoError(t, term.ResignTo(t.Context(), line[1].Node), "a foreign contender may lead")
		require.ErrorIs(t, term.ResignTo(t.Context(), line[2].Node), protocol.ErrReleased)
		require.Empty(t, won)
		require.NoError(t, conn.Delete(strange, -1))
		b := next(t, won)
		require.NoError(t, e.Break(t.Context(), b.Node()))
		require.ErrorIs(t, b.ResignTo(t.Context(), line[1].Node), protocol.ErrLost)
		require.NoError(t, wait.Wait())
	})
}

// The server loses its leader before it passes the transaction on, and goes on answering pings. It
// is left soon enough to resign over another one with the same session.
func TestResignToLeavesAServerThatDoesNotAnswer(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link, follower := srv.Root(t)+"/e", srv.Link(t), srv.Embedded().Follower()
		gate := &suite.Gate{Op: recipestest.OpMulti}
		link.Move(follower)
		onlooker, c := srv.Client(t), link.Client(t, gate.Option(link))
		link.Move(nil)
		session, leader := suite.Session(t, c), campaign(t, c, path, "leader")
		var wait suite.Group
		won := stand(t, onlooker, srv.Client(t), path, "next", 1, &wait)
		line := suite.Await(t, 2, election.New(onlooker, path).Candidates)

		gate.Shut()
		ctx := suite.Within(t, session.Timeout()/2)
		resigned := suite.Later(func() error { return leader.ResignTo(ctx, line[1].Node) })
		synctest.Wait()
		require.True(t, gate.Holding())
		follower.Isolate()
		gate.Open()
		require.NoError(t, suite.Wait(t, resigned))
		require.NoError(t, session.Err())
		resign(t, next(t, won))
		require.NoError(t, wait.Wait())
	})
}

// A candidate that is passed over stands again, however little patience the view's back-off has.
func TestCandidateThatIsPassedOverStandsAgain(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, c := srv.Root(t)+"/e", srv.Client(t)
		first, e := campaign(t, c, path, "first"), election.New(c, path)
		hasty := suite.Later(func() *election.Term {
			term, err := election.New(impatient(srv.Client(t)), path).Campaign(suite.Lasting(t), []byte("hasty"))
			require.NoError(t, err)
			return term
		})
		suite.Await(t, 2, e.Candidates)
		chosen := suite.Later(func() *election.Term { term, _ := e.Campaign(suite.Lasting(t), []byte("chosen")); return term })
		line := suite.Await(t, 3, e.Candidates)
		require.NoError(t, first.ResignTo(t.Context(), line[2].Node))
		suite.Await(t, 2, e.Candidates)
		require.NoError(t, suite.Wait(t, chosen).Resign(t.Context()))
		resign(t, suite.Wait(t, hasty))
	})
}

// Contenders of our other recipes are no other library's: they find their way to the end of the
// line.
func TestResignToPassesOverOtherRecipes(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, c := srv.Root(t)+"/e", srv.Client(t)
		first, e := campaign(t, c, path, "first"), election.New(c, path)
		ran := suite.Later(func() bool {
			ran, _ := once.New(srv.Client(t), path).Do(suite.Lasting(t), "key", func(context.Context, *once.Run) error { return nil })
			return ran
		})
		suite.Await(t, 2, e.Candidates)
		chosen := suite.Later(func() *election.Term { term, _ := e.Campaign(suite.Lasting(t), []byte("chosen")); return term })
		line := suite.Await(t, 3, e.Candidates)
		require.NoError(t, first.ResignTo(t.Context(), line[2].Node))
		resign(t, suite.Wait(t, chosen))
		require.True(t, suite.Wait(t, ran))
	})
}

// Curator's LeaderLatch counts in line. One behind our candidate would lead beside it.
func TestLeaderLatchIsRespected(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, c := srv.Root(t)+"/e", srv.Client(t)
		suite.Keep(t, c, path)
		latch := func() (leave func()) {
			conn := suite.Session(t, c).Conn()
			node, err := conn.CreateProtectedEphemeralSequential(path+"/latch-", []byte("theirs"), zk.WorldACL(zk.PermAll))
			require.NoError(t, err)
			return func() { require.NoError(t, conn.Delete(node, -1)) }
		}
		e := election.New(srv.Client(t), path)
		leave := latch()
		l, err := e.Leader(t.Context())
		require.NoError(t, err)
		require.Equal(t, "theirs", string(l.Value))
		require.Equal(t, suite.Session(t, c).ID(), l.Session)
		won := suite.Later(func() *election.Term { term, _ := e.Campaign(suite.Lasting(t), nil); return term })
		suite.Await(t, 2, e.Candidates)
		synctest.Wait()
		require.Empty(t, won)
		leave()
		resign(t, suite.Wait(t, won))

		// One that has come meanwhile leads as soon as the first is gone. Ours does not lead beside it.
		leave = latch()
		failed := suite.Later(func() error { _, err := e.Campaign(suite.Lasting(t), nil); return err })
		suite.Await(t, 2, e.Candidates)
		defer latch()()
		leave()
		require.ErrorIs(t, suite.Wait(t, failed), protocol.ErrMixed)
	})
}
