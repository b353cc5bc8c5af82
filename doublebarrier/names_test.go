package doublebarrier_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/doublebarrier"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// A member is counted while it is cut off, its session ends, and so does the round. Then the server
// removes the container, and the sequence of the next one starts again.
func TestNameOfAMemberIsNeverUsedAgain(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/b"
		link := srv.Link(t)
		client, other := link.Client(t), srv.Client(t)
		e := enter(patient(t), doublebarrier.New(client, path, 2))
		joined(t, other, path, 1)
		<-link.Answered(recipestest.OpGetData, 1) // the record
		link.Cut()

		first := enter(patient(t), doublebarrier.New(other, path, 2)).must(t)
		srv.ExpireSession(session(t, client).ID())
		require.NoError(t, first.Leave(patient(t)))
		wipe(t, session(t, other).Conn(), path+"/process")

		link.Heal()
		joined(t, other, path, 1)
		second := enter(patient(t), doublebarrier.New(other, path, 2)).must(t)
		require.Contains(t, second.Members(), e.must(t).Node())
		for _, m := range second.Members() {
			require.NotContains(t, first.Members(), m)
		}
		leave(t, e.entry, second)
	})
}

// All nodes are deleted by hand, and the member joins again in the same session.
func TestNameOfAMemberIsNotUsedAgainInItsSession(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/b"
		client, other := srv.Client(t), srv.Client(t)
		conn := session(t, other).Conn()

		e := enter(patient(t), doublebarrier.New(client, path, 2))
		joined(t, other, path, 1)
		before := suite.Children(t, other, path+"/process")
		wipe(t, conn, path+"/process")
		joined(t, other, path, 1)

		second := enter(patient(t), doublebarrier.New(other, path, 2)).must(t)
		require.NotContains(t, second.Members(), before[0])
		leave(t, e.must(t), second)
	})
}
