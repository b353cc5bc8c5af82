package election_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/election"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/internal/zkwire"
	"github.com/zkrecipes/zkrecipes/once"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// A chosen candidate leads after one notification, and nobody behind it wakes. Candidates before it
// go to the end of the line: one whose back-off ends at the first pause, and a contender of another
// recipe of ours.
func TestResignToAChosenCandidate(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, c := srv.Root(t)+"/e", srv.Client(t)
		e := election.New(c, path)
		leader := campaign(t, c, path, "leader")
		ran := suite.Later(func() bool {
			ran, _ := once.New(srv.Client(t), path).Do(suite.Lasting(t), "key", func(context.Context, *once.Run) error { return nil })
			return ran
		})
		suite.Await(t, 2, e.Candidates)
		hasty := stand(t, impatient(srv.Client(t)), path, "hasty", 2)
		links := []*recipestest.Link{srv.Link(t), srv.Link(t)}
		chosen := stand(t, links[0].Client(t), path, "chosen", 3)
		behind := stand(t, links[1].Client(t), path, "behind", 4)
		line := suite.Await(t, 5, e.Candidates)
		time.Sleep(time.Second)
		before := links[0].Count(recipestest.OpAny)

		require.NoError(t, leader.ResignTo(t.Context(), line[3].Node))
		require.ErrorIs(t, leader.Err(), protocol.ErrReleased)
		term := suite.Wait(t, chosen)
		require.Greater(t, term.Token(), leader.Token())
		require.Equal(t, 2, links[0].Events(), "the marker and the predecessor's deletion")
		require.Equal(t, before, links[0].Count(recipestest.OpAny), "the notification suffices")
		require.Zero(t, links[1].Events())

		line = suite.Await(t, 4, e.Candidates)
		require.Equal(t, []string{"chosen", "behind"}, values(line[:2]))
		require.NoError(t, term.ResignTo(t.Context(), line[1].Node), "the next one")
		resign(t, suite.Wait(t, behind))
		resign(t, suite.Wait(t, hasty))
		require.True(t, suite.Wait(t, ran))
	})
}

// A candidate leaves when the line was listed. If it is the chosen one, the term ends as by Resign,
// and otherwise the chosen one leads all the same.
func TestResignToWhileACandidateLeaves(t *testing.T) {
	for leaver, want := range map[int]error{1: nil, 2: nil, 3: election.ErrNotInLine} {
		recipestest.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
			path, link, gate := srv.Root(t)+"/e", srv.Link(t), &suite.Gate{Op: recipestest.OpMulti}
			e := election.New(srv.Client(t), path)
			leader := campaign(t, link.Client(t, gate.Option(link)), path, "a")
			var won []<-chan *election.Term
			for i, name := range []string{"b", "c", "d"} {
				won = append(won, stand(t, srv.Client(t), path, name, i+1))
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
			resign(t, suite.Wait(t, won[first]))
			var wait suite.Group
			for _, other := range slices.Delete(won, first, first+1) {
				wait.Go(func() error { return suite.Wait(t, other).Resign(t.Context()) })
			}
			require.NoError(t, wait.Wait())
		})
	}
}

// A Proclaim whose caller gave up is still on its way when the next one is made. It must not undo
// the next one.
func TestAbandonedProclaimDoesNotUndoALaterOne(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link := srv.Root(t)+"/late", srv.Link(t)
		term, e := campaign(t, link.Client(t), path, "one"), election.New(srv.Client(t), path)
		time.Sleep(time.Second)
		link.Delay(100 * time.Millisecond)
		short := suite.Within(t, 250*time.Millisecond) // the second request is on its way
		require.ErrorIs(t, term.Proclaim(short, []byte("given up")), context.DeadlineExceeded)
		require.NoError(t, term.Proclaim(t.Context(), []byte("wanted")))
		time.Sleep(time.Second)
		l := suite.Must(t, e.Leader)
		require.Equal(t, "wanted", string(l.Value))
		resign(t, term)
	})
}

func TestResignToAnUnfitCandidateChangesNothing(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path, c := srv.Root(t)+"/refused", srv.Client(t)
		e, term := election.New(c, path), campaign(t, c, path, "leader")
		conn := suite.Session(t, srv.Client(t)).Conn()
		strange := suite.Got(conn.Create(path+"/_c_0123456789abcdef-lock-", nil, zk.FlagEphemeralSequential, zk.WorldACL(zk.PermAll)))(t)
		won := stand(t, srv.Client(t), path, "b", 2)
		line := suite.Await(t, 3, e.Candidates)

		for _, node := range []string{"", "unknown", term.Node()} {
			require.ErrorIs(t, term.ResignTo(t.Context(), node), election.ErrNotInLine)
		}
		err := term.ResignTo(t.Context(), line[2].Node)
		require.ErrorIs(t, err, election.ErrForeignContender)
		require.ErrorContains(t, err, "election: "+path)
		require.NoError(t, term.Err())
		require.Equal(t, line, suite.Await(t, 3, e.Candidates))

		require.NoError(t, term.ResignTo(t.Context(), line[1].Node), "a foreign contender may lead")
		require.ErrorIs(t, term.ResignTo(t.Context(), line[2].Node), protocol.ErrReleased)
		require.Empty(t, won)
		require.NoError(t, conn.Delete(strange, -1))
		b := suite.Wait(t, won)
		require.NoError(t, e.Break(t.Context(), b.Node()))
		require.ErrorIs(t, b.ResignTo(t.Context(), line[1].Node), protocol.ErrLost)
	})
}

// A request may be smaller than usual.
func TestResignToOverTooManyCandidatesChangesNothing(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, c := srv.Root(t)+"/e", srv.Client(t)
		term := campaign(t, srv.Client(t, protocol.WithRequestLimit(1024)), path, "leader")
		for n := range 9 {
			stand(t, c, path, "next", n+1)
		}
		line := suite.Await(t, 10, election.New(c, path).Candidates)
		require.ErrorIs(t, term.ResignTo(t.Context(), line[9].Node), protocol.ErrTooLarge)
		require.NoError(t, term.Err())
		resign(t, term)
		suite.Close(t, c)
	})
}

func TestLeaderIsNoOlderThanTheCall(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link, follower := srv.Root(t)+"/e", srv.Link(t), srv.Embedded().Follower()
		link.Move(follower)
		e := election.New(link.Client(t), path)
		require.ErrorIs(t, suite.Err(e.Leader(t.Context())), election.ErrNoLeader)
		follower.Lag(time.Second)
		term := campaign(t, srv.Client(t), path, "leader")
		suite.Got(e.Leader(t.Context()))(t)
		resign(t, term)
	})
}

// The server refuses to pass anybody over. The term has ended, so its node goes all the same.
func TestResignToThatIsRefusedResigns(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link := srv.Root(t)+"/e", srv.Link(t)
		leader := campaign(t, link.Client(t), path, "leader")
		won := stand(t, srv.Client(t), path, "next", 1)
		line := suite.Await(t, 2, election.New(srv.Client(t), path).Candidates)
		link.Fail(recipestest.OpMulti, "", int32(zkwire.CodeNoAuth), 2)
		require.ErrorIs(t, leader.ResignTo(t.Context(), line[1].Node), zk.ErrNoAuth)
		link.Cut() // nothing is asked about a term that has ended
		require.ErrorIs(t, leader.ResignTo(suite.Within(t, time.Second), line[1].Node), protocol.ErrReleased)
		link.Heal()
		resign(t, suite.Wait(t, won))
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
		won := stand(t, onlooker, path, "next", 1)
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
		resign(t, suite.Wait(t, won))
	})
}

// A LeaderLatch behind our candidate leads as soon as the one before it is gone. Ours does not lead
// beside it.
func TestCandidateDoesNotLeadBesideALeaderLatch(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, c := srv.Root(t)+"/e", srv.Client(t)
		suite.Keep(t, c, path)
		latch := func() (leave func()) {
			conn := suite.Session(t, c).Conn()
			node := suite.Got(conn.CreateProtectedEphemeralSequential(path+"/latch-", []byte("theirs"), zk.WorldACL(zk.PermAll)))(t)
			return func() { require.NoError(t, conn.Delete(node, -1)) }
		}

		e, leave := election.New(srv.Client(t), path), latch()
		failed := suite.Later(func() error { _, err := e.Campaign(suite.Lasting(t), nil); return err })
		suite.Await(t, 2, e.Candidates)
		defer latch()()
		leave()
		require.ErrorIs(t, suite.Wait(t, failed), protocol.ErrMixed)
	})
}
