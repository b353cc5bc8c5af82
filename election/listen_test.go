package election_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/election"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

func TestListenerHearsOfTermsAndLeaders(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/listen"
		first := campaign(t, srv.Client(t), path, "first")
		e := election.New(srv.Client(t), path)
		l := listen(t, e, "me")
		require.Equal(t, election.State{Leader: leaderOf(first, "first")}, suite.Wait(t, l.states))

		suite.Await(t, 2, e.Candidates)
		resign(t, first)
		s := l.until(t, leads)
		require.Equal(t, leaderOf(s.Term, "me"), s.Leader)
		held, ok := e.Leading()
		require.True(t, ok)
		require.Same(t, s.Term, held)

		require.NoError(t, s.Term.Proclaim(t.Context(), []byte("me, still")))
		now := suite.Wait(t, l.states)
		require.Same(t, s.Term, now.Term)
		require.Equal(t, "me, still", string(now.Leader.Value))
		l.stop()
		l.until(t, waits)
		require.NoError(t, suite.Wait(t, l.ended))
		require.Empty(t, l.states)
		suite.Await(t, 0, e.Candidates)
	})
}

// The listener does in its call what has to be done before another process may lead.
func TestListenerIsToldBeforeTheTermIsGivenBack(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		ctx, cancel := context.WithCancel(t.Context())
		e := election.New(srv.Client(t), srv.Root(t)+"/before")
		var mine *election.Term
		told := false
		err := e.Listen(ctx, nil, func(s election.State) {
			if s.Term != nil {
				mine = s.Term
				cancel()
			} else if mine != nil && !told { // later it can be told that there is no leader
				told = true
				require.NoError(t, mine.Err())
				suite.Await(t, 1, e.Candidates)
			}
		})
		require.NoError(t, err)
		require.True(t, told)
		require.ErrorIs(t, mine.Err(), protocol.ErrReleased)
	})
}

func TestListenerThatBlocksGetsTheNewestLeader(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		c, path := srv.Client(t), srv.Root(t)+"/blocks"
		e, first := election.New(srv.Client(t), path), campaign(t, c, path, "first")
		busy, free := make(chan struct{}), make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		block := sync.OnceFunc(func() { close(busy); <-free })
		states := make(chan election.State, 100)
		ended := suite.Later(func() error {
			return e.Listen(ctx, []byte("me"), func(s election.State) { states <- s; block() })
		})
		suite.Wait(t, busy)

		// While the first call blocks, its candidate wins a term and loses it to the last one.
		suite.Await(t, 2, e.Candidates)
		won := stand(t, c, path, "last", 2)
		resign(t, first)
		time.Sleep(time.Second)
		term, leads := e.Leading()
		require.True(t, leads)
		require.NoError(t, election.New(c, path).Break(t.Context(), term.Node()))
		suite.Wait(t, term.Done())
		last := suite.Wait(t, won)
		close(free)

		require.Equal(t, leaderOf(first, "first"), suite.Wait(t, states).Leader)
		for s := suite.Wait(t, states); s.Leader.Token != last.Token(); s = suite.Wait(t, states) { // it may have seen its own
			require.Nil(t, s.Term)
		}
		suite.Await(t, 2, e.Candidates) // it campaigns again: until then, Listen would return the loss
		cancel()
		require.NoError(t, suite.Wait(t, ended))
		resign(t, last)
	})
}
