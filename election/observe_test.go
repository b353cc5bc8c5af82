package election_test

import (
	"context"
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
		path, c := srv.Root(t)+"/observed", srv.Client(t)
		e := election.New(c, path)
		require.ErrorIs(t, suite.Err(e.Leader(t.Context())), election.ErrNoLeader)
		early := observed(t, t.Context(), e)
		require.Equal(t, "vacant", suite.Wait(t, early))

		a := campaign(t, srv.Client(t), path, "a")
		require.Equal(t, "a", suite.Wait(t, early))
		l := suite.Must(t, e.Leader)
		require.Equal(t, leaderOf(a, "a"), l)
		late := observed(t, t.Context(), e)
		require.Equal(t, "a", suite.Wait(t, late))
		both := func(want string) {
			t.Helper()
			require.Equal(t, want, suite.Wait(t, early))
			require.Equal(t, want, suite.Wait(t, late))
		}

		require.NoError(t, a.Proclaim(t.Context(), []byte("a, ready")))
		both("a, ready")
		b := stand(t, srv.Client(t), path, "b", 1)
		resign(t, a)
		both("b")
		resign(t, suite.Wait(t, b))
		both("vacant")
		d := campaign(t, srv.Client(t), path, "d")
		both("d")
		resign(t, d)
		both("vacant")
	})
}

func TestAThousandObserversOfAClientCostWhatOneCosts(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		c, link, path := srv.Client(t), srv.Link(t), srv.Root(t)+"/crowd"
		var won []<-chan *election.Term
		for i, name := range []string{"a", "b", "c", "d"} {
			won = append(won, stand(t, c, path, name, i))
		}
		link.Delay(time.Millisecond)
		e := election.New(link.Client(t), path)
		ctx, stop := context.WithCancel(t.Context())
		var crowd []<-chan string
		requests := link.Count(recipestest.OpAny)
		sees := func(want string, most int) {
			t.Helper()
			for _, changes := range crowd {
				require.Equal(t, want, suite.Wait(t, changes))
			}
			time.Sleep(time.Second)
			before := requests
			requests = link.Count(recipestest.OpAny)
			require.LessOrEqual(t, requests-before, most)
		}

		for range 1000 {
			crowd = append(crowd, observed(t, ctx, e))
		}
		sees("a", 4) // the first one's Sync and one for all others, a listing and a read
		crowd = append(crowd, observed(t, ctx, e))
		require.Equal(t, "a", suite.Wait(t, crowd[1000]))
		term := suite.Wait(t, won[0])
		require.NoError(t, term.Proclaim(t.Context(), []byte("a, ready")))
		sees("a, ready", 2) // with the new observer's Sync
		line := suite.Await(t, 4, election.New(c, path).Candidates)
		require.NoError(t, term.ResignTo(t.Context(), line[2].Node))
		sees("c", 2) // b is looked for in vain, and stands again behind d
		resign(t, suite.Wait(t, won[2]))
		sees("d", 1)
		resign(t, suite.Wait(t, won[3]))
		sees("b", 2) // it was in no listing

		time.Sleep(time.Hour)
		resign(t, suite.Wait(t, won[1]))
		sees("vacant", 62) // one recheck a minute
		time.Sleep(time.Hour)
		term = campaign(t, c, path, "last")
		sees("last", 68) // the empty container was removed meanwhile
		stop()
		time.Sleep(time.Hour)
		resign(t, term)
		crowd = nil
		sees("", 0)
	})
}

// Another library may use names that come again when the line was deleted and created. What an
// observer knows of such a name says nothing about the node that has it later.
func TestObserverDoesNotTrustAForeignNameThatComesAgain(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		c, link, path := srv.Client(t), srv.Link(t), srv.Root(t)+"/again"
		conn := suite.Session(t, c).Conn()
		foreign := func(value string) string {
			node := suite.Got(conn.Create(path+"/lock-", []byte(value), zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll)))(t)
			return node
		}
		a := campaign(t, c, path, "a")
		before := foreign("stale")
		changes := observed(t, t.Context(), election.New(link.Client(t), path))
		require.Equal(t, "a", suite.Wait(t, changes))

		link.Cut()
		resign(t, a)
		require.NoError(t, conn.Delete(before, -1))
		require.NoError(t, conn.Delete(path, -1))
		b := campaign(t, c, path, "b")
		require.Equal(t, before, foreign("foreign"), "the name comes again")
		link.Heal()
		require.Equal(t, "b", suite.Wait(t, changes))
		resign(t, b)
		require.Equal(t, "foreign", suite.Wait(t, changes))
		require.NoError(t, conn.Delete(before, -1))
	})
}

// A session that was of use is followed by the next one without a pause. If a session has yielded
// nothing, the back-off decides what comes next.
func TestObserverGoesOnIfItHasYielded(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link, looks := srv.Root(t)+"/e", srv.Link(t), &suite.Gate{Op: recipestest.OpExists} // the line does not exist
		c := link.Client(t, looks.Option(link))
		e := election.New(impatient(c), path)
		changes := observed(t, t.Context(), e)
		require.Equal(t, "vacant", suite.Wait(t, changes))
		expire := func() {
			s := suite.Session(t, c)
			srv.ExpireSession(s.ID())
			suite.Wait(t, s.Done())
		}
		expire()
		term := campaign(t, srv.Client(t), path, "a")
		require.Equal(t, "a", suite.Wait(t, changes))
		resign(t, term)

		suite.Session(t, c)
		looks.Shut()
		ended := observed(t, t.Context(), election.New(impatient(c), srv.Root(t)))
		synctest.Wait()
		require.True(t, looks.Holding())
		expire()
		require.Contains(t, suite.Wait(t, ended), protocol.ErrLost.Error())
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
		require.Equal(t, "vacant", suite.Wait(t, changes))
		close(end)
		require.ErrorIs(t, suite.Wait(t, first), zk.ErrNoAuth)
	})
}

// A writer at the path becomes a reader, in a new node at the same place in line: once while
// nothing happens, and once between the listing and the look at the writer's node. The candidate
// behind it does not lead until the reader has left, and is then seen, though its token is smaller
// than the token of the reader's node.
func TestCandidateBehindAWriterThatBecomesAReader(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link, looks := srv.Root(t)+"/mixed", srv.Link(t), &suite.Gate{Op: recipestest.OpGetData}
		onlooker := election.New(link.Client(t, looks.Option(link)), path)
		for _, meanwhile := range []bool{false, true} {
			writing := suite.Must(t, rwlock.New(srv.Client(t), path, rwlock.WithData([]byte("ahead"))).Lock)
			won := stand(t, srv.Client(t), path, "behind", 1)
			l := listen(t, election.New(srv.Client(t), path), "listener")
			require.Equal(t, writing.Token(), suite.Wait(t, l.states).Leader.Token)
			if meanwhile {
				looks.Shut()
			}
			seen := suite.Later(func() string {
				leader, _ := onlooker.Leader(suite.Lasting(t))
				return string(leader.Value)
			})
			time.Sleep(time.Second)
			require.Equal(t, meanwhile, looks.Holding())

			reading := suite.Must(t, writing.Downgrade)
			looks.Open()
			require.Equal(t, "ahead", suite.Wait(t, seen))
			require.Greater(t, suite.Wait(t, l.states).Leader.Token, writing.Token())
			time.Sleep(time.Second)
			require.Empty(t, l.states, "the candidate does not lead yet")
			require.Empty(t, won)

			require.NoError(t, reading.Unlock(suite.Lasting(t)))
			term := suite.Wait(t, won)
			require.Equal(t, term.Token(), l.until(t, led("behind")).Leader.Token)
			l.stop()
			require.NoError(t, suite.Wait(t, l.ended))
			resign(t, term)
		}
	})
}
