package election_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/election"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/internal/zkwire"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/rwlock"
)

func TestObserveYieldsThePresentAndEveryChange(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/observed"
		onlooker := srv.Client(t)
		observer := election.New(onlooker, path)
		early := observed(t, t.Context(), observer)
		require.Equal(t, "vacant", next(t, early))

		var wait suite.Group
		a := campaign(t, srv.Client(t), path, "a")
		require.Equal(t, "a", next(t, early))
		late := observed(t, t.Context(), observer)
		require.Equal(t, "a", next(t, late))
		both := func(want string) {
			t.Helper()
			require.Equal(t, want, next(t, early))
			require.Equal(t, want, next(t, late))
		}

		require.NoError(t, a.Proclaim(t.Context(), []byte("a, ready")))
		both("a, ready")
		wonB := stand(t, onlooker, srv.Client(t), path, "b", 1, &wait)
		wonC := stand(t, onlooker, srv.Client(t), path, "c", 2, &wait)
		resign(t, a)
		both("b")
		resign(t, next(t, wonB))
		both("c")
		resign(t, next(t, wonC))
		both("vacant")
		d := campaign(t, srv.Client(t), path, "d")
		both("d")
		resign(t, d)
		both("vacant")
		require.NoError(t, wait.Wait())
	})
}

func TestLoopMayEndAtAnyChange(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/break"
		e := election.New(srv.Client(t), path)
		for l, err := range e.Observe(t.Context()) {
			require.NoError(t, err)
			require.True(t, l.Vacant())
			break
		}

		term := campaign(t, srv.Client(t), path, "a")

		for range 100 {
			for l, err := range e.Observe(t.Context()) {
				require.NoError(t, err)
				require.Equal(t, leaderOf(term, "a"), l)
				break
			}
		}

		resign(t, term)
	})
}

func TestLeaderIsNoOlderThanTheCall(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/leader"
		link := srv.Link(t)
		e := election.New(link.Client(t), path)
		_, err := e.Leader(t.Context())
		require.ErrorIs(t, err, election.ErrNoLeader)
		c := srv.Client(t)

		for i := range 5 {
			term := campaign(t, c, path, fmt.Sprint(i))
			syncs := link.Count(recipestest.OpSync)
			l, err := e.Leader(t.Context())
			require.NoError(t, err)
			require.Equal(t, leaderOf(term, fmt.Sprint(i)), l)
			require.Greater(t, link.Count(recipestest.OpSync), syncs, "a server that lags behind has to catch up first")
			resign(t, term)
			_, err = e.Leader(t.Context())
			require.ErrorIs(t, err, election.ErrNoLeader)
		}
	})
}

func TestAThousandObserversOfAClientCostWhatOneCosts(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		onlooker, c, path := srv.Client(t), srv.Client(t), srv.Root(t)+"/crowd"
		var wait suite.Group
		won := lineUp(t, onlooker, c, path, "a b c", &wait)

		crowd := newCrowd(t, srv, path, 1000)
		crowd.sees(t, "a", 0)
		require.LessOrEqual(t, crowd.link.Count(recipestest.OpSync), 2, "the first one's, and one for all others")
		require.Equal(t, 1, crowd.link.Count(recipestest.OpGetChildren))
		require.Equal(t, 1, crowd.link.Count(recipestest.OpGetData))

		ctx, leave := context.WithCancel(t.Context())
		late := observed(t, ctx, election.New(crowd.client, path))
		before := crowd.requests()
		require.Equal(t, "a", next(t, late))
		require.Equal(t, before+1, crowd.requests(), "a new observer costs a Sync")
		leave()

		events := crowd.link.Events()
		before = crowd.requests()
		term := next(t, won[0])
		require.NoError(t, term.Proclaim(t.Context(), []byte("a, ready")))
		require.Equal(t, 1, crowd.sees(t, "a, ready", before))
		for i, leader := range []string{"b", "c", "vacant"} {
			before = crowd.requests()
			resign(t, term)
			require.Equal(t, 1, crowd.sees(t, leader, before), leader)
			if i+1 < len(won) {
				term = next(t, won[i+1])
			}
		}
		require.Equal(t, events+4, crowd.link.Events(), "one for each change")

		before = crowd.requests()
		d := campaign(t, c, path, "d")
		require.Equal(t, 2, crowd.sees(t, "d", before), "who comes into an empty line has to be listed and read")

		before = crowd.requests()
		time.Sleep(time.Hour)
		require.LessOrEqual(t, crowd.requests()-before, 62, "one recheck a minute")
		resign(t, d)
		crowd.sees(t, "vacant", before)
		before = crowd.requests()
		time.Sleep(time.Hour)
		require.LessOrEqual(t, crowd.requests()-before, 65, "and some when the server removes the empty container")
		crowd.stop()
		time.Sleep(time.Second)
		before = crowd.requests()
		time.Sleep(time.Hour)
		require.Equal(t, before, crowd.requests(), "no observer is left")
		require.NoError(t, wait.Wait())
	})
}

func TestObserversPassOverCandidatesThatAreGone(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		onlooker, path := srv.Client(t), srv.Root(t)+"/passed"
		var wait suite.Group
		leader := campaign(t, srv.Client(t), path, "a")
		ctx, giveUp := context.WithCancel(t.Context())
		gaveUp := make(chan error, 1)
		go func() {
			_, err := election.New(srv.Client(t), path).Campaign(ctx, []byte("b"))
			gaveUp <- err
		}()
		suite.Await(t, 2, election.New(onlooker, path).Candidates)
		won := make(map[string]<-chan *election.Term)
		for i, name := range []string{"c", "d", "e"} {
			won[name] = stand(t, onlooker, srv.Client(t), path, name, i+2, &wait)
		}

		observer := srv.Client(t)
		changes := observed(t, t.Context(), election.New(observer, path))
		require.Equal(t, "a", next(t, changes))
		giveUp()
		require.ErrorIs(t, <-gaveUp, context.Canceled)
		line := suite.Await(t, 4, election.New(onlooker, path).Candidates)
		require.NoError(t, leader.ResignTo(t.Context(), line[2].Node), "which passes c over")
		require.Equal(t, "d", next(t, changes))

		// Candidate c has joined again, behind e.
		suite.Await(t, 3, election.New(onlooker, path).Candidates)
		for _, name := range []string{"d", "e", "c"} {
			resign(t, next(t, won[name]))
			want := map[string]string{"d": "e", "e": "c", "c": "vacant"}[name]
			require.Equal(t, want, next(t, changes))
		}
		require.NoError(t, wait.Wait())
	})
}

// Another library may use names that come again when the line was deleted and created. What an
// observer knows of such a name says nothing about the node that has it later.
func TestObserverDoesNotTrustAForeignNameThatComesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := recipestest.Start(t, recipestest.WithInMemory())
		c, path := srv.Client(t), srv.Root(t)+"/again"
		conn := suite.Session(t, c).Conn()
		foreign := func(value string) string {
			node, err := conn.Create(path+"/lock-", []byte(value), zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
			require.NoError(t, err)
			return node
		}
		a := campaign(t, c, path, "a")
		before := foreign("stale")
		crowd := newCrowd(t, srv, path, 1)
		crowd.sees(t, "a", 0)

		crowd.link.Cut()
		resign(t, a)
		require.NoError(t, conn.Delete(before, -1))
		require.NoError(t, conn.Delete(path, -1))
		b := campaign(t, c, path, "b")
		require.Equal(t, before, foreign("foreign"), "the name comes again")
		crowd.link.Heal()
		crowd.sees(t, "b", 0)
		resign(t, b)
		crowd.sees(t, "foreign", 0)
		require.NoError(t, conn.Delete(before, -1))
	})
}

// A session that was of use is followed by the next one without a pause of the back-off.
func TestObserverThatHasYieldedGoesOnWithoutAPause(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, c := srv.Root(t)+"/e", srv.Client(t)
		changes := observed(t, t.Context(), election.New(impatient(c), path))
		require.Equal(t, "vacant", next(t, changes))

		s := suite.Session(t, c)
		srv.ExpireSession(s.ID())
		<-s.Done()
		term := campaign(t, srv.Client(t), path, "a")

		require.Equal(t, "a", next(t, changes))
		resign(t, term)
	})
}

// A session that has yielded nothing was of no use, so the back-off decides what comes next.
func TestObserverWithoutAnyYieldEndsWithItsBackOff(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link := srv.Link(t)
		looks := &suite.Gate{Op: recipestest.OpExists} // the line does not exist
		c := link.Client(t, looks.Option(link))
		s := suite.Session(t, c)
		looks.Shut()
		ended := suite.Later(func() (last error) {
			for _, err := range election.New(impatient(c), srv.Root(t)+"/e").Observe(suite.Within(t, time.Hour)) {
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

// The server refuses to list the line once. An observer that has heard of it has not left yet when
// the next one begins.
func TestObserverThatBeginsAfterARefusalSeesTheLeader(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link := srv.Root(t)+"/e", srv.Link(t)
		e := election.New(link.Client(t), path)
		term := campaign(t, srv.Client(t), path, "a")
		begun, end := make(chan struct{}), make(chan struct{})
		first := suite.Later(func() (last error) {
			for _, err := range e.Observe(t.Context()) {
				if last = err; err == nil {
					close(begun)
					<-end
				}
			}
			return last
		})
		suite.Wait(t, begun)

		link.Fail(recipestest.OpGetChildren, path, int32(zkwire.CodeNoAuth), 1)
		resign(t, term)
		synctest.Wait()
		changes := observed(t, t.Context(), e)
		require.Equal(t, "vacant", next(t, changes))
		close(end)
		require.ErrorIs(t, suite.Wait(t, first), zk.ErrNoAuth)
	})
}

// A writer at the path becomes a reader, in a new node at the same place in line. The candidate
// behind it does not lead until the reader has left, and is then seen, though its token is smaller
// than that of the reader's node.
func TestCandidateBehindAWriterThatBecomesAReader(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/mixed"
		writing, err := rwlock.New(srv.Client(t), path).Lock(suite.Lasting(t))
		require.NoError(t, err)
		c := srv.Client(t)
		won := suite.Later(func() *election.Term {
			term, err := election.New(c, path).Campaign(suite.Lasting(t), []byte("behind"))
			require.NoError(t, err)
			return term
		})
		time.Sleep(time.Second)
		l := listen(t, election.New(srv.Client(t), path), "listener")
		require.Equal(t, writing.Token(), next(t, l.states).Leader.Token)

		reading, err := writing.Downgrade(suite.Lasting(t))
		require.NoError(t, err)
		require.Greater(t, next(t, l.states).Leader.Token, writing.Token())
		time.Sleep(time.Second)
		synctest.Wait()
		require.Empty(t, l.states, "the candidate does not lead yet")
		require.Empty(t, won)

		require.NoError(t, reading.Unlock(suite.Lasting(t)))
		term := suite.Wait(t, won)
		require.Equal(t, term.Token(), l.until(t, led("behind")).Leader.Token)
		l.stop()
		require.NoError(t, suite.Wait(t, l.ended))
		resign(t, term)
	})
}

// The writer becomes a reader between the listing and the look at its node.
func TestLeaderIsNotTheCandidateBehindAWriterThatBecomesAReader(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link := srv.Root(t)+"/mixed", srv.Link(t)
		gate := &suite.Gate{Op: recipestest.OpGetData}
		onlooker := election.New(link.Client(t, gate.Option(link)), path)
		writing, err := rwlock.New(srv.Client(t), path, rwlock.WithData([]byte("ahead"))).Lock(suite.Lasting(t))
		require.NoError(t, err)
		c := srv.Client(t)
		won := suite.Later(func() *election.Term {
			term, err := election.New(c, path).Campaign(suite.Lasting(t), []byte("behind"))
			require.NoError(t, err)
			return term
		})
		time.Sleep(time.Second)

		gate.Shut()
		seen := suite.Later(func() election.Leader {
			leader, err := onlooker.Leader(suite.Lasting(t))
			require.NoError(t, err)
			return leader
		})
		synctest.Wait()
		require.True(t, gate.Holding())
		reading, err := writing.Downgrade(suite.Lasting(t))
		require.NoError(t, err)
		gate.Open()

		require.Equal(t, "ahead", string(suite.Wait(t, seen).Value))
		require.NoError(t, reading.Unlock(suite.Lasting(t)))
		resign(t, suite.Wait(t, won))
	})
}
