package election_test

import (
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/election"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// loseData returns a client of an ensemble that loses its data when lose is called. Another server
// then takes the place of the first one, and its transactions have smaller numbers.
func loseData(t *testing.T, before *recipestest.Server) (c *protocol.Client, after *recipestest.Server, lose func()) {
	after = recipestest.Start(t, recipestest.WithInMemory())
	links := [2]*recipestest.Link{before.Link(t), after.Link(t)}
	var at atomic.Int32
	c = before.Client(t, protocol.WithDialer(func(network, address string, timeout time.Duration) (net.Conn, error) {
		return links[at.Load()].Dial(network, address, timeout)
	}))
	for range 100 {
		_, err := suite.Session(t, c).EnsurePath(t.Context(), "/many")
		require.NoError(t, err)
		require.NoError(t, suite.Session(t, c).Delete(t.Context(), "/many", -1))
	}
	return c, after, func() {
		at.Store(1)
		links[0].Cut()
	}
}

// The tokens begin anew, so the first term is not the latest one for ever.
func TestLeadingAfterALossOfTheData(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		c, _, lose := loseData(t, srv)
		e := election.New(c, "/e")
		first, err := e.Campaign(t.Context(), nil)
		require.NoError(t, err)
		lose()
		<-first.Done()
		second, err := e.Campaign(t.Context(), nil)
		require.NoError(t, err)
		require.Less(t, second.Token(), first.Token())
		held, ok := e.Leading()
		require.True(t, ok)
		require.Same(t, second, held)
		resign(t, second)
	})
}

func TestListenerIsToldOfLeadersAfterALossOfTheData(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		c, after, lose := loseData(t, srv)
		l := listen(t, election.New(c, "/e"), "listener")
		first := l.until(t, leads)
		term := campaign(t, after.Client(t), "/e", "other")
		require.Less(t, term.Token(), first.Term.Token())
		lose()
		l.until(t, led("other"))
		l.stop()
		require.NoError(t, suite.Wait(t, l.ended))
		resign(t, term)
	})
}
