package group_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/group"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/recipestest"
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

		peers := suite.Must(t, group.New(b, path).Members)
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
		suite.Ensure(t, s, path+"/container")
		require.Equal(t, []string{"a=1"}, members(t, g))
		_, err := g.TryJoin(t.Context(), "persistent", nil)
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

// Only early versions tell a member that may not read its own node whether the node is there.
func TestMemberThatMayNotReadItsNode(t *testing.T) {
	eachVersion(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/g"
		c := srv.Client(t)
		g := group.New(c, path)
		suite.Ensure(t, suite.Session(t, c), path)
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
		suite.Ensure(t, suite.Session(t, c), path)
		alice := srv.Client(t, protocol.WithAuth("digest", []byte("alice:secret")))
		m := join(t, group.New(alice, path), "a", "x")
		suite.CatchUp(t, c)
		require.Equal(t, []string{"a="}, members(t, group.New(c, path)))
		link := srv.Link(t)
		for _, other := range []*protocol.Client{c, link.Client(t)} {
			link.LoseReply(recipestest.OpCreate, 1)
			_, err := group.New(other, path).TryJoin(suite.Lasting(t), "a", nil)
			require.ErrorIs(t, err, group.ErrNameTaken)
		}
		leave(t, m)
		leave(t, join(t, group.New(c, path), "a", ""))
	})
}

// The caller gives up before the connection comes back, or right after the group's node was
// created. (No server deletes a container that never had a child.)
func TestJoinThatIsGivenUpLeavesNothing(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link, c := srv.Root(t)+"/g", srv.Link(t), srv.Client(t)
		impatient := link.Client(t)
		kept := join(t, group.New(c, path), "kept", "")
		_, before := suite.Get(t, c, path)
		met := suite.At(link, 1, link.Cut)
		_, err := group.New(impatient, path).Join(suite.Within(t, time.Second), "a", nil)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.True(t, met())
		link.Heal()
		time.Sleep(time.Minute)
		_, after := suite.Get(t, c, path)
		require.Equal(t, before.Cversion, after.Cversion)
		leave(t, kept)

		for step := 1; step <= 10; step++ {
			path := fmt.Sprint(path, step)
			ctx, cancel := context.WithCancel(t.Context())
			met := suite.At(link, step, func() { cancel(); time.Sleep(time.Second) })
			m, err := group.New(impatient, path).Join(ctx, "a", nil)
			met()
			cancel()
			if err == nil {
				leave(t, m)
			}
			time.Sleep(10 * time.Second)
			if suite.Exists(t, c, path) {
				_, stat := suite.Get(t, c, path)
				require.Equal(t, []int32{2, 0}, []int32{stat.Cversion, stat.NumChildren}, step)
			}
		}
	})
}

func TestJoinWaitsForTheName(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path, c := srv.Root(t)+"/g", srv.Client(t)
		m := join(t, group.New(c, path), "a", "1")
		for _, other := range []*protocol.Client{c, c.With(), srv.Client(t)} { // of the same session, and of another
			_, err := group.New(other, path).TryJoin(t.Context(), "a", nil)
			require.ErrorIs(t, err, group.ErrNameTaken)
			require.ErrorContains(t, err, "group: "+path+": name taken: \"a\" by ")
			_, err = group.New(other, path).Join(suite.Within(t, 100*time.Millisecond), "a", nil)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			next := suite.Later(func() *group.Member { return join(t, group.New(other, path), "a", "2") })
			time.Sleep(100 * time.Millisecond)
			require.Empty(t, next)
			require.True(t, m.Joined())
			leave(t, m)
			leave(t, m) // again
			m = suite.Wait(t, next)
			require.Equal(t, []string{"a=2"}, members(t, group.New(c, path)))
		}
		leave(t, m)
		require.Empty(t, members(t, group.New(c, path)))
	})
}

// A process that is started again gets the name of its earlier life at once (and no other name).
func TestIdentityTakesTheNameOver(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link, c := srv.Root(t)+"/g", srv.Link(t), srv.Client(t)
		pod := func(c *protocol.Client) *group.Group { return group.New(c, path, group.WithIdentity("pod")) }
		earlier := link.Client(t)
		first := join(t, pod(earlier), "a", "1")
		for _, g := range []*group.Group{group.New(c, path), group.New(c, path, group.WithIdentity("other"))} {
			require.ErrorIs(t, suite.Err(g.TryJoin(t.Context(), "a", nil)), group.ErrNameTaken)
		}
		other := join(t, pod(c), "b", "")
		require.True(t, first.Joined())

		link.Stall()
		began := time.Now()
		second := suite.Got(pod(c).TryJoin(t.Context(), "a", []byte("2")))(t)
		require.Zero(t, time.Since(began))
		link.Heal()
		joined(t, first, false)
		time.Sleep(time.Minute)
		require.False(t, first.Joined(), "it waits")
		require.Zero(t, suite.Session(t, earlier).EphemeralBytes())
		require.True(t, second.Joined())
		require.ElementsMatch(t, []string{"a=2", "b="}, members(t, pod(c)))
		leave(t, second)
		joined(t, first, true)

		// An identity says nothing about another node of the session.
		plain := join(t, group.New(c, path), "plain", "")
		session := suite.Session(t, c)
		stale := path + "-identities/" + recipe.Owner{Session: session.ID()}.String() + "-plain"
		require.NoError(t, session.Create(t.Context(), stale, []byte("pod"), zk.FlagEphemeral))
		require.ErrorIs(t, suite.Err(pod(link.Client(t)).TryJoin(t.Context(), "plain", nil)), group.ErrNameTaken)
		require.NoError(t, session.Delete(t.Context(), stale, -1))
		leave(t, plain)

		// An operator deletes the node. Its identity must then give no member the name.
		require.NoError(t, suite.Session(t, c).Delete(t.Context(), path+"/a", -1))
		time.Sleep(time.Second)
		joined(t, first, true)
		require.Len(t, suite.Children(t, c, path+"-identities"), 2)
		require.NoError(t, suite.Session(t, c).Delete(t.Context(), path+"/a", -1)) // and as it leaves
		leave(t, first, other)
		require.Empty(t, suite.Children(t, c, path+"-identities"))
	})
}

// The earlier life leaves and another process gets the name at once, while the next life is about
// to take the name over.
func TestIdentityTakesTheNameOverFromNobodyElse(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		for step := 1; step <= 6; step++ {
			path, link, gate := fmt.Sprint(srv.Root(t), "/", step), srv.Link(t), &suite.Gate{Op: recipestest.OpGetData}
			first := join(t, group.New(link.Client(t), path, group.WithIdentity("pod")), "a", "")
			other, later := group.New(srv.Client(t), path), srv.Link(t)
			next := group.New(later.Client(t, gate.Option(later)), path, group.WithIdentity("pod"))
			time.Sleep(time.Second) // the node is watched

			gate.Shut()
			second := suite.Later(func() *group.Member { return join(t, next, "a", "") })
			synctest.Wait()
			require.True(t, gate.Holding(), "it looks whose node that is")
			met := suite.At(link, step, func() {
				m, err := other.TryJoin(t.Context(), "a", nil)
				gate.Open()
				time.Sleep(time.Second)
				if err == nil {
					require.True(t, m.Joined(), step)
					leave(t, m)
				}
			})
			leave(t, first)
			met()
			gate.Open()
			leave(t, suite.Wait(t, second))
		}
	})
}

// The earlier life leaves while the next one takes its name over.
func TestIdentityTakesTheNameOverWhileItIsLeft(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		for step := 1; step <= 12; step++ {
			path, link := fmt.Sprint(srv.Root(t), "/", step), srv.Link(t)
			pod := func(c *protocol.Client) *group.Group { return group.New(c, path, group.WithIdentity("pod")) }
			first, next := join(t, pod(srv.Client(t)), "a", ""), pod(link.Client(t))
			met := suite.At(link, step, func() { leave(t, first) })
			second := join(t, next, "a", "")
			if !met() {
				leave(t, first)
			}
			require.True(t, second.Joined(), step)
			leave(t, second)
		}
	})
}

func TestWatchDataYieldsChangesOfData(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link := srv.Root(t)+"/g", srv.Link(t)
		g := group.New(srv.Client(t), path)
		a := join(t, g, "a", "1")
		got := make(chan []string)
		ctx, cancel := context.WithCancel(t.Context())
		ended := suite.Later(func() error {
			for peers, err := range group.New(link.Client(t), path).WatchData(ctx) {
				if err != nil {
					return err
				}
				got <- described(peers)
			}
			return nil
		})
		require.Equal(t, []string{"a=1"}, suite.Wait(t, got))
		require.NoError(t, a.Set(t.Context(), []byte("2")))
		require.Equal(t, []string{"a=2"}, suite.Wait(t, got))
		b := join(t, g, "b", "1")
		require.Equal(t, []string{"a=2", "b=1"}, suite.Wait(t, got))
		require.NoError(t, a.Set(t.Context(), []byte("2")), "which changes nothing")
		require.NoError(t, b.Set(t.Context(), []byte("2")))
		require.Equal(t, []string{"a=2", "b=2"}, suite.Wait(t, got))

		link.Cut()
		require.NoError(t, a.Set(t.Context(), []byte("3")))
		time.Sleep(time.Second)
		link.Heal()
		require.Equal(t, []string{"a=3", "b=2"}, suite.Wait(t, got))
		leave(t, b)
		require.Equal(t, []string{"a=3"}, suite.Wait(t, got))
		cancel()
		require.NoError(t, suite.Wait(t, ended), "a loop ends with its context")
		for _, err := range g.WatchData(suite.Within(t, 0)) {
			require.ErrorIs(t, err, context.DeadlineExceeded)
		}
		leave(t, a)
	})
}

// While the watcher is cut off, the member leaves and joins again, so that the listings are equal.
// Then the group is created again with as many changes, so that only its node's czxid differs.
func TestWatcherNoticesThatAMemberIsAnotherOne(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link, c := srv.Root(t)+"/g", srv.Link(t), srv.Client(t)
		g := group.New(c, path)
		kept, m := join(t, g, "kept", ""), join(t, g, "a", "1")
		next := watch(t, group.New(link.Client(t), path))
		was := until(t, next, "kept=", "a=1")
		link.Cut()
		leave(t, m)
		m = join(t, g, "a", "2")
		link.Heal()
		now := next()
		require.Equal(t, []string{"kept=", "a=2"}, described(now))
		require.Equal(t, was[0], now[0])

		link.Cut()
		leave(t, m, kept)
		require.NoError(t, suite.Session(t, c).Delete(t.Context(), path, -1))
		kept, m = join(t, g, "kept", ""), join(t, g, "a", "3")
		leave(t, m)
		m = join(t, g, "a", "4")
		link.Heal()
		require.Equal(t, []string{"kept=", "a=4"}, described(next()))
		leave(t, m, kept)
	})
}
