package group_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/group"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// Error codes of a server.
const (
	noAuth       = -102
	badArguments = -8
)

func TestShareEndsWhenItsLockIsRefused(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link := srv.Link(t)
		g := group.New(link.Client(t), srv.Root(t)+"/g")
		m := join(t, g, "a", "")
		link.Fail(recipestest.OpCreateContainer, "", noAuth, 1)
		err := group.Share(suite.Within(t, time.Hour), g, m, []string{"x"}, idle)
		require.ErrorIs(t, err, zk.ErrNoAuth)
		leave(t, m)
	})
}

// The group cannot be watched any more, so no work may go on.
func TestShareEndsWhenItsGroupCannotBeListed(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link := srv.Root(t)+"/g", srv.Link(t)
		g := group.New(link.Client(t), path)
		m := join(t, g, "a", "")
		ended := suite.Later(func() error {
			return group.Share(suite.Within(t, time.Hour), g, m, []string{"x"}, idle)
		})
		synctest.Wait()
		link.Fail(recipestest.OpGetChildren, path, noAuth, 1)
		began, other := time.Now(), join(t, group.New(srv.Client(t), path), "b", "")
		require.ErrorIs(t, suite.Wait(t, ended), zk.ErrNoAuth)
		require.Less(t, time.Since(began), time.Minute)
		leave(t, m, other)
	})
}

func TestShareThatIsRefusedSendsNothing(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link := srv.Link(t)
		g := group.New(link.Client(t), srv.Root(t)+"/g")
		m := join(t, g, "a", "")
		time.Sleep(time.Second)
		var none context.Context
		before := link.Count(recipestest.OpAny)
		require.ErrorContains(t, group.Share(none, g, m, nil, idle), "nil context")
		require.ErrorContains(t, group.Share(t.Context(), group.New(nil, "/g"), m, nil, idle), "nil client")
		require.ErrorContains(t, group.Share(t.Context(), g, nil, nil, idle), "nil member")
		require.ErrorContains(t, group.Share(t.Context(), g, m, nil, nil), "nil function")
		require.Equal(t, before, link.Count(recipestest.OpAny))
		leave(t, m)
	})
}

// The node can neither be read nor deleted by its own member. It goes as soon as that is allowed.
func TestNodeThatMayNotBeReadIsDeletedLater(t *testing.T) {
	recipestest.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, c := srv.Root(t)+"/g", srv.Client(t)
		s := suite.Session(t, c)
		_, err := s.EnsurePath(t.Context(), path)
		require.NoError(t, err)
		_, err = s.Conn().SetACL(path, zk.WorldACL(zk.PermRead|zk.PermCreate|zk.PermAdmin), -1)
		require.NoError(t, err)
		secret := srv.Client(t).With(protocol.WithACL(zk.WorldACL(zk.PermDelete)))

		_, err = group.New(secret, path).Join(t.Context(), "secret", nil)
		require.ErrorIs(t, err, zk.ErrNoAuth)
		require.Equal(t, []string{"secret"}, suite.Children(t, c, path))
		_, err = s.Conn().SetACL(path, zk.WorldACL(zk.PermAll), -1)
		require.NoError(t, err)
		time.Sleep(2 * time.Minute)
		require.Empty(t, suite.Children(t, c, path))
	}, like39)
}

// A member that cannot be read is not left out in silence.
func TestMembersThatCannotBeReadAreAnError(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link := srv.Root(t)+"/g", srv.Link(t)
		g, m := group.New(link.Client(t), path), join(t, group.New(srv.Client(t), path), "a", "")
		link.Fail(recipestest.OpGetData, path+"/a", badArguments, 1)
		_, err := g.Members(t.Context())
		require.ErrorIs(t, err, zk.ErrBadArguments)
		leave(t, m)
	})
}

// An empty list would mean that all members have gone.
func TestWatchEndsWhenAMemberCannotBeRead(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link := srv.Root(t)+"/g", srv.Link(t)
		g, m := group.New(link.Client(t), path), join(t, group.New(srv.Client(t), path), "a", "")
		link.Fail(recipestest.OpGetData, path+"/a", badArguments, 1)
		for peers, err := range g.Watch(t.Context()) {
			require.ErrorIs(t, err, zk.ErrBadArguments)
			require.Empty(t, peers)
		}
		leave(t, m)
	})
}

func TestJoinEndsWhenItsGroupCannotBeCreated(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link := srv.Root(t)+"/g", srv.Link(t)
		g := group.New(link.Client(t), path)
		link.Fail(recipestest.OpCreateContainer, path, noAuth, 1)
		_, err := g.Join(t.Context(), "a", nil)
		require.ErrorIs(t, err, zk.ErrNoAuth)
		leave(t, join(t, g, "a", ""))
	})
}

// The name is taken, and the server does not say by whom.
func TestJoinEndsWhenItCannotLookAtTheNode(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link := srv.Root(t)+"/g", srv.Link(t)
		m := join(t, group.New(srv.Client(t), path), "a", "")
		link.Fail(recipestest.OpExists, path+"/a", badArguments, 1)
		_, err := group.New(link.Client(t), path).Join(t.Context(), "a", nil)
		require.ErrorIs(t, err, zk.ErrBadArguments)
		leave(t, m)
	})
}

// The member leaves between the listing and the look at its node.
func TestMemberThatLeavesMeanwhileIsNotListed(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link := srv.Root(t)+"/g", srv.Link(t)
		gate := &suite.Gate{Op: recipestest.OpGetData}
		g, m := group.New(link.Client(t, gate.Option(link)), path), join(t, group.New(srv.Client(t), path), "a", "")
		gate.Shut()
		listed := suite.Later(func() []string { return members(t, g) })
		synctest.Wait()
		require.True(t, gate.Holding())
		leave(t, m)
		gate.Open()
		require.Empty(t, suite.Wait(t, listed))
	})
}
