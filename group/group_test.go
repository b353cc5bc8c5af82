package group_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/group"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

func TestMembersAreListedInOrderOfJoining(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/deep/g"
		a, b := srv.Client(t), srv.Client(t)
		require.Empty(t, members(t, group.New(a, path)))
		began := time.Now()
		last := join(t, group.New(a, path), "zebra", "1")
		first := join(t, group.New(b, path), "ant", "2")
		second := join(t, group.New(a, path), "bee", "")

		peers, err := group.New(b, path).Members(t.Context())
		require.NoError(t, err)
		require.Equal(t, []string{"zebra=1", "ant=2", "bee="}, described(peers))
		require.Equal(t, suite.Session(t, a).ID(), peers[0].Session)
		require.Equal(t, suite.Session(t, b).ID(), peers[1].Session)
		require.WithinDuration(t, began, peers[0].Since, time.Minute)
		require.Equal(t, "ant", first.Name())

		leave(t, first, last)
		require.Equal(t, []string{"bee="}, members(t, group.New(b, path)))
		leave(t, second)
		require.Empty(t, suite.Children(t, a, path))
	})
}

func TestForeignNodesAreNoMembers(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		c, path := srv.Client(t), srv.Root(t)+"/g"
		g := group.New(c, path)
		m := join(t, g, "a", "1")
		s := suite.Session(t, c)
		require.NoError(t, s.Create(t.Context(), path+"/persistent", []byte("x"), 0))
		_, err := s.EnsurePath(t.Context(), path+"/container")
		require.NoError(t, err)
		require.Equal(t, []string{"a=1"}, members(t, g))
		_, err = g.Join(t.Context(), "persistent", nil)
		require.ErrorIs(t, err, group.ErrNameTaken)
		require.ErrorContains(t, err, "not a member's")
		next := watch(t, group.New(srv.Client(t), path))
		until(t, next, "a=1")
		leave(t, m)
		require.Empty(t, next())
		require.NoError(t, s.Delete(t.Context(), path+"/container", -1))
		require.NoError(t, s.Delete(t.Context(), path+"/persistent", -1))
	})
}

// eachVersion runs a test as [suite.Each] does, and on an embedded server like 3.9, where the Stat
// of a node that may not be read is hidden, too.
func eachVersion(t *testing.T, test func(*testing.T, *recipestest.Server)) {
	suite.Each(t, test)
	t.Run("3.9", func(t *testing.T) {
		t.Parallel()
		test(t, recipestest.Start(t, like39))
	})
}

var like39 = recipestest.WithConfigFunc(func(cfg *embedded.Config) { cfg.Version = "3.9" })

// A member that may not read its own node can tell whether it is there in early versions only.
func TestMemberThatMayNotReadItsNode(t *testing.T) {
	eachVersion(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/g"
		c := srv.Client(t)
		g := group.New(c, path)
		_, err := suite.Session(t, c).EnsurePath(t.Context(), path)
		require.NoError(t, err)
		secret := srv.Client(t).With(protocol.WithACL([]zk.ACL{{Perms: zk.PermDelete, Scheme: "world", ID: "anyone"}}))

		if suite.Has(t, srv, suite.HiddenStats) {
			_, err := group.New(secret, path).Join(t.Context(), "secret", []byte("x"))
			require.ErrorIs(t, err, zk.ErrNoAuth)
			require.NotErrorIs(t, err, group.ErrNameTaken)
			require.ErrorContains(t, err, "zk.PermRead")
			require.Empty(t, members(t, g))
			return
		}
		m := join(t, group.New(secret, path), "secret", "x")
		require.Equal(t, []string{"secret="}, members(t, g))
		leave(t, m)
	})
}

func TestMemberOfAnotherIdentityIsListed(t *testing.T) {
	eachVersion(t, func(t *testing.T, srv *recipestest.Server) {
		path, c := srv.Root(t)+"/g", srv.Client(t)
		_, err := suite.Session(t, c).EnsurePath(t.Context(), path)
		require.NoError(t, err)
		alice := srv.Client(t, protocol.WithAuth("digest", []byte("alice:secret")))
		m := join(t, group.New(alice, path), "a", "x")
		suite.CatchUp(t, c)
		require.Equal(t, []string{"a="}, members(t, group.New(c, path)))
		link := srv.Link(t)
		for _, other := range []*protocol.Client{c, link.Client(t)} {
			link.LoseReply(recipestest.OpCreate, 1)
			_, err = group.New(other, path).Join(suite.Lasting(t), "a", nil)
			require.ErrorIs(t, err, group.ErrNameTaken)
		}
		leave(t, m)
		leave(t, join(t, group.New(c, path), "a", ""))
	})
}

func TestOneMemberHasAName(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path, c := srv.Root(t)+"/g", srv.Client(t)
		m := join(t, group.New(c, path), "a", "1")
		for _, other := range []*protocol.Client{c, c.With(), srv.Client(t)} {
			_, err := group.New(other, path).Join(t.Context(), "a", nil)
			require.ErrorIs(t, err, group.ErrNameTaken)
			require.ErrorContains(t, err, "group: "+path+": name taken: \"a\" by ")
		}
		require.True(t, m.Joined())
		leave(t, m)
		leave(t, m) // again
		for _, other := range []*protocol.Client{c, c.With(), srv.Client(t)} {
			leave(t, join(t, group.New(other, path), "a", ""))
		}
	})
}

func TestBadInputIsRefusedWithoutIO(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link := srv.Link(t)
		c := link.Client(t)
		g := group.New(c, srv.Root(t)+"/g")
		m := join(t, g, "a", "")
		before := link.Count(recipestest.OpAny)
		for _, name := range []string{"", ".", "..", "/", "a/b", "a/", "\x00", "\xff", "a\ufff0"} {
			_, err := g.Join(t.Context(), name, nil)
			require.ErrorIs(t, err, zk.ErrInvalidPath, "%q", name)
			require.ErrorContains(t, err, "group: ")
		}
		huge := []byte(strings.Repeat("x", protocol.MaxData))
		_, err := g.Join(t.Context(), "b", huge)
		require.ErrorIs(t, err, protocol.ErrTooLarge)
		require.ErrorIs(t, m.Set(t.Context(), huge), protocol.ErrTooLarge)
		for _, path := range []string{"", "g", "/", "/g/"} {
			_, err := group.New(c, path).Join(t.Context(), "a", nil)
			require.ErrorIs(t, err, zk.ErrInvalidPath)
			_, err = group.New(c, path).Members(t.Context())
			require.ErrorIs(t, err, zk.ErrInvalidPath)
			_, err = group.New(c, path).Await(t.Context(), 1)
			require.ErrorIs(t, err, zk.ErrInvalidPath)
		}
		refusal := errors.New("no")
		_, err = group.New(c, "/g", nil, func(*group.Group) error { return refusal }).Members(t.Context())
		require.ErrorIs(t, err, refusal)
		_, err = group.New(nil, "/g").Join(t.Context(), "a", nil)
		require.ErrorContains(t, err, "nil client")
		require.Equal(t, before, link.Count(recipestest.OpAny))
		leave(t, m)
	})
}

func TestWatchYieldsThePresentAndThenEveryChange(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/g"
		g := group.New(srv.Client(t), path)
		next := watch(t, group.New(srv.Client(t), path))
		require.Empty(t, next(), "the group does not exist")
		a := join(t, g, "a", "1")
		until(t, next, "a=1")
		b := join(t, g, "b", "2")
		until(t, next, "a=1", "b=2")
		until(t, watch(t, g), "a=1", "b=2")
		leave(t, a)
		until(t, next, "b=2")
		leave(t, b)
		until(t, next)
	})
}

// The member leaves and joins again while the watcher is cut off: its listings are equal.
func TestWatcherNoticesThatAMemberIsAnotherOne(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link := srv.Root(t)+"/g", srv.Link(t)
		g := group.New(srv.Client(t), path)
		kept := join(t, g, "kept", "")
		m := join(t, g, "a", "1")
		next := watch(t, group.New(link.Client(t), path))
		was := until(t, next, "kept=", "a=1")
		link.Cut()
		leave(t, m)
		m = join(t, g, "a", "2")
		link.Heal()
		now := next()
		require.Equal(t, []string{"kept=", "a=2"}, described(now))
		require.Equal(t, was[0], now[0])
		leave(t, m, kept)
	})
}

func TestWatchGoesOnInTheNextSession(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path, c := srv.Root(t)+"/g", srv.Client(t)
		g := group.New(srv.Client(t), path)
		a := join(t, g, "a", "1")
		next := watch(t, group.New(c, path))
		until(t, next, "a=1")
		s := suite.Session(t, c)
		srv.ExpireSession(s.ID())
		<-s.Done()
		b := join(t, g, "b", "2")
		until(t, next, "a=1", "b=2")
		leave(t, a, b)
		until(t, next)
	})
}

func TestWatchEnds(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		c := srv.Client(t)
		g := group.New(c, srv.Root(t)+"/g")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var last error
		for peers, err := range g.Watch(ctx) {
			cancel()
			require.Empty(t, peers)
			last = err
		}
		require.ErrorIs(t, last, context.Canceled)
		_, err := g.Await(ctx, 1)
		require.ErrorIs(t, err, context.Canceled)
		failed := suite.Later(func() error { _, err := g.Await(t.Context(), 1); return err })
		suite.Close(t, c)
		require.ErrorIs(t, suite.Wait(t, failed), protocol.ErrClosed)
	})
}

func TestAwaitWaitsForMembers(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/g"
		g := group.New(srv.Client(t), path)
		enough := suite.Later(func() []string {
			peers, err := group.New(srv.Client(t), path).Await(t.Context(), 2)
			require.NoError(t, err)
			return names(peers)
		})
		peers, err := g.Await(t.Context(), 0)
		require.NoError(t, err)
		require.Empty(t, peers)
		a := join(t, g, "a", "")
		require.Empty(t, enough)
		b := join(t, g, "b", "")
		require.Equal(t, []string{"a", "b"}, suite.Wait(t, enough))
		leave(t, a, b)
	})
}
