package election_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/election"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/rwlock"
)

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
