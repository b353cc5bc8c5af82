package group_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/group"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// The channel gets a value after a loss and after its end. It is closed with the membership.
func TestChangesAreToldOf(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link := srv.Link(t)
		m := join(t, group.New(link.Client(t), srv.Root(t)+"/g"), "a", "")
		synctest.Wait()
		require.Empty(t, m.Changes())
		link.Stall()
		suite.Wait(t, m.Changes())
		require.False(t, m.Joined())
		synctest.Wait()
		require.Empty(t, m.Changes())
		link.Heal()
		suite.Wait(t, m.Changes())
		require.True(t, m.Joined())
		leave(t, m)
		_, more := <-m.Changes()
		require.False(t, more)
	})
}

// The caller has given up when the member joins again. Its data must count all the same.
func TestDataThatIsSetWhileNotJoinedIsJoinedWith(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link := srv.Root(t)+"/g", srv.Link(t)
		m := join(t, group.New(link.Client(t), path), "a", "old")
		link.Stall()
		joined(t, m, false)
		ctx := suite.Within(t, time.Second)
		require.ErrorIs(t, m.Set(ctx, []byte("new")), context.DeadlineExceeded)
		link.Heal()
		joined(t, m, true)
		require.Equal(t, []string{"a=new"}, members(t, group.New(srv.Client(t), path)))
		leave(t, m)
		require.ErrorIs(t, m.Set(t.Context(), nil), protocol.ErrReleased)
	})
}

// The server refuses what the ACL does not allow.
func TestSetThatIsRefusedChangesNothing(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path, c := srv.Root(t)+"/g", srv.Client(t)
		suite.Keep(t, c, path) // or else the member may create it again, with its own ACL
		fixed := c.With(protocol.WithACL([]zk.ACL{{Perms: zk.PermRead, Scheme: "world", ID: "anyone"}}))
		m := join(t, group.New(fixed, path), "a", "old")
		require.ErrorIs(t, m.Set(t.Context(), []byte("new")), zk.ErrNoAuth)
		s := suite.Session(t, c)
		srv.ExpireSession(s.ID())
		suite.Wait(t, s.Done())
		joined(t, m, true)
		require.Equal(t, []string{"a=old"}, members(t, group.New(c, path)))
		leave(t, m)
	})
}

// A member that has lost its name to another member leaves that member alone.
func TestLostMemberLeavesItsSuccessorAlone(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, other := srv.Root(t)+"/g", srv.Client(t)
		g := group.New(srv.Client(t), path)
		m := join(t, g, "a", "mine")
		time.Sleep(time.Second)
		_, err := suite.Session(t, other).Multi(t.Context(),
			&zk.DeleteRequest{Path: path + "/a", Version: -1},
			&zk.CreateRequest{Path: path + "/a", Data: []byte("other"), Flags: zk.FlagEphemeral})
		require.NoError(t, err)
		time.Sleep(time.Hour)
		require.False(t, m.Joined())
		require.Equal(t, []string{"a=other"}, members(t, g))
		leave(t, m)
		require.Equal(t, []string{"a=other"}, members(t, g))
		suite.Close(t, other)
	})
}

// A member tries to join again while another member of its client has the name. It joins once that
// member has left, or leaves at once.
func TestMemberWaitsForTheNameThatAnotherOfItsClientHas(t *testing.T) {
	for _, first := range []bool{false, true} {
		recipestest.Bubble(t, func(t *testing.T, srv *recipestest.Server) { waitsForItsClient(t, srv, first) })
	}
}

func waitsForItsClient(t *testing.T, srv *recipestest.Server, leaves bool) {
	path, c := srv.Root(t)+"/g", srv.Client(t)
	impatient := c.With(protocol.WithBackOff(func() backoff.BackOff { return &backoff.StopBackOff{} }))
	first := join(t, group.New(impatient, path), "a", "first")
	stays := join(t, group.New(c, path), "stays", "") // or the path would be deleted
	conn := suite.Session(t, srv.Client(t)).Conn()
	suite.Got(conn.SetACL(path, zk.WorldACL(zk.PermRead|zk.PermDelete|zk.PermAdmin), -1))(t)
	require.NoError(t, conn.Delete(path+"/a", -1))
	joined(t, first, false)
	time.Sleep(time.Second) // it pauses for longer than that
	suite.Got(conn.SetACL(path, zk.WorldACL(zk.PermAll), -1))(t)

	second := join(t, group.New(c, path), "a", "second")
	time.Sleep(time.Minute)
	require.False(t, first.Joined())
	require.True(t, second.Joined())
	if !leaves {
		leave(t, second)
		joined(t, first, true)
	}
	leave(t, first, second, stays)
}

// The answer to the deletion is lost, and another process takes the name at that moment. The
// deletion is not repeated.
func TestLeaveDoesNotDeleteTheNextMemberOfTheName(t *testing.T) {
	for _, hidden := range []bool{false, true} {
		servers, opts, hit := []recipestest.Option{recipestest.WithInMemory()}, []protocol.ConnectOption(nil), false
		if hidden {
			// The next member belongs to another identity, and a server like 3.9 hides even the
			// Stat of its node.
			servers, opts = append(servers, like39), append(opts, protocol.WithAuth("digest", []byte("alice:secret")))
		}
		suite.Sweep(t, func(step int) (met bool) {
			synctest.Test(t, func(t *testing.T) {
				srv := recipestest.Start(t, servers...)
				path, link := srv.Root(t)+"/g", srv.Link(t)
				c, other := link.Client(t), group.New(srv.Client(t, opts...), path)
				m := join(t, group.New(c, path), "a", "")
				time.Sleep(time.Second) // the node is watched
				over := suite.At(link, step, func() { link.StallReplies() })
				left := suite.Later(func() error { return m.Leave(t.Context()) })
				time.Sleep(50 * time.Millisecond)
				next, err := other.TryJoin(t.Context(), "a", nil)
				met = over()
				suite.Blip(link)
				require.NoError(t, suite.Wait(t, left), "step %d", step)
				require.Zero(t, suite.Session(t, c).EphemeralBytes(), "step %d", step)
				time.Sleep(time.Minute)
				if err != nil {
					require.ErrorIs(t, err, group.ErrNameTaken)
					return
				}
				hit = hit || met
				require.True(t, next.Joined(), "step %d", step)
				require.Empty(t, next.Changes(), "step %d", step)
				leave(t, next)
			})
			return met
		})
		require.True(t, hit, "no answer to a deletion was lost")
	}
}

// A member leaves while it joins again. No node comes after that.
func TestLeaveWaitsForARequestThatIsOnItsWay(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link, gate := srv.Root(t)+"/g", srv.Link(t), &suite.Gate{Op: recipestest.OpCreate}
		g, c := group.New(srv.Client(t), path), link.Client(t, gate.Option(link))
		m, kept := join(t, group.New(c, path), "a", ""), join(t, g, "kept", "")
		gate.Shut()
		suite.Expire(srv, suite.Session(t, c).ID())
		time.Sleep(time.Second)
		require.True(t, gate.Holding())
		left := suite.Later(func() error { return m.Leave(t.Context()) })
		time.Sleep(100 * time.Millisecond)
		require.Empty(t, left)
		require.False(t, m.Joined())
		gate.Open()
		require.NoError(t, suite.Wait(t, left))
		require.Equal(t, []string{"kept="}, members(t, g))
		leave(t, kept)
	})
}

// A server that does not answer is left soon enough to join over another one with the same session.
func TestJoinLeavesAServerThatDoesNotAnswer(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link, follower := srv.Link(t), srv.Embedded().Follower()
		link.Move(follower)
		c := link.Client(t)
		session := suite.Session(t, c)
		link.Move(nil)
		follower.Isolate()

		ctx := suite.Within(t, session.Timeout()/2)
		m := suite.Got(group.New(c, srv.Root(t)+"/g").Join(ctx, "a", nil))(t)
		require.Equal(t, session, suite.Session(t, c))
		leave(t, m)
	})
}

// The server refuses to delete the node. Before the next attempt, an operator deletes the node, and
// another session takes the name.
func TestRefusedDeletionSparesTheNextMember(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		const refused = -102
		path, link, c := srv.Root(t)+"/g", srv.Link(t), srv.Client(t)
		m := join(t, group.New(link.Client(t), path), "a", "1")
		link.Fail(recipestest.OpDelete, path+"/a", refused, 1)
		require.ErrorIs(t, m.Leave(t.Context()), zk.ErrNoAuth)
		require.NoError(t, suite.Session(t, c).Delete(t.Context(), path+"/a", -1))
		next := join(t, group.New(c, path), "a", "2")
		time.Sleep(time.Minute)
		synctest.Wait()
		require.True(t, next.Joined())
		require.Empty(t, next.Changes())
		leave(t, next)
	})
}
