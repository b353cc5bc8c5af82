package election_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/election"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// impatient returns a view of the client whose back-off ends at the first pause.
func impatient(c *protocol.Client) *protocol.Client {
	return c.With(protocol.WithBackOff(func() backoff.BackOff { return &backoff.StopBackOff{} }))
}

// The server may lag behind others as long as it has not answered the Sync.
func TestLeaderIsNotReadWithoutASync(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link := srv.Root(t)+"/e", srv.Link(t)
		e, term := election.New(impatient(link.Client(t)), path), campaign(t, srv.Client(t), path, "a")

		link.LoseReply(recipestest.OpSync, 1)
		_, err := e.Leader(t.Context())
		require.ErrorIs(t, err, zk.ErrConnectionClosed)

		leader, err := e.Leader(t.Context())
		require.NoError(t, err)
		require.Equal(t, term.Token(), leader.Token)
		resign(t, term)
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

		link.Fail(recipestest.OpGetChildren, path, noAuth, 1)
		resign(t, term)
		synctest.Wait()
		changes := observed(t, t.Context(), e)
		require.Equal(t, "vacant", next(t, changes))
		close(end)
		require.ErrorIs(t, suite.Wait(t, first), zk.ErrNoAuth)
	})
}
