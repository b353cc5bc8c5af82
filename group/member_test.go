package group_test

import (
	"context"
	"fmt"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/group"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

func TestMemberJoinsAgainAfterALostSession(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path, c := srv.Root(t)+"/g", srv.Client(t)
		m := join(t, group.New(c, path), "a", "1")
		require.NoError(t, m.Set(t.Context(), []byte("2")))
		for range 3 {
			s := suite.Session(t, c)
			srv.ExpireSession(s.ID())
			<-s.Done()
			joined(t, m, true)
			peers, err := group.New(srv.Client(t), path).Members(t.Context())
			require.NoError(t, err)
			require.Equal(t, []string{"a=2"}, described(peers))
			require.Equal(t, suite.Session(t, c).ID(), peers[0].Session)
		}
		leave(t, m)
	})
}

func TestMemberWhoseNodeIsDeletedJoinsAgain(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path, c, operator := srv.Root(t)+"/g", srv.Client(t), srv.Client(t)
		g := group.New(c, path)
		m := join(t, g, "a", "1")
		for range 5 {
			peers, err := g.Members(t.Context())
			require.NoError(t, err)
			require.NoError(t, suite.Session(t, operator).Delete(t.Context(), path+"/a", -1))
			require.Eventually(t, func() bool {
				now, err := g.Members(t.Context())
				return err == nil && len(now) == 1 && !reflect.DeepEqual(now, peers) && m.Joined()
			}, suite.Limit, time.Millisecond)
		}
		leave(t, m)
	})
}

// The member joins again once the name is free. Meanwhile it neither takes the name away nor thinks
// that it has it.
func TestNameThatWasTakenOverIsWaitedFor(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path, other := srv.Root(t)+"/g", srv.Client(t)
		link := srv.Link(t)
		c := link.Client(t)
		m := join(t, group.New(c, path), "a", "mine")

		// An operator replaces the node in one transaction. So the grant's node has the same name.
		_, err := suite.Session(t, other).Multi(t.Context(),
			&zk.DeleteRequest{Path: path + "/a", Version: -1},
			&zk.CreateRequest{Path: path + "/a", Data: []byte("other"), Flags: zk.FlagEphemeral})
		require.NoError(t, err)
		joined(t, m, false)
		require.Equal(t, []string{"a=other"}, members(t, group.New(c, path)))

		late := suite.Later(func() error { return m.Set(t.Context(), []byte("late")) })
		suite.Close(t, other)
		joined(t, m, true)
		require.NoError(t, suite.Wait(t, late))
		require.Equal(t, []string{"a=late"}, members(t, group.New(c, path)))
		leave(t, m)
	})
}

// Both members of one client have lost the name. One of them gets it, and the other one after that.
func TestMembersOfOneClientTakeANameInTurn(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path, c := srv.Root(t)+"/g", srv.Client(t)
		g := group.New(c, path)
		first := join(t, g, "a", "first")
		other := srv.Client(t)
		_, err := suite.Session(t, other).Multi(t.Context(),
			&zk.DeleteRequest{Path: path + "/a", Version: -1},
			&zk.CreateRequest{Path: path + "/a", Flags: zk.FlagEphemeral})
		require.NoError(t, err)
		joined(t, first, false)
		suite.Close(t, other)
		joined(t, first, true)
		second := suite.Later(func() *group.Member {
			for {
				if m, err := group.New(c, path).Join(t.Context(), "a", []byte("second")); err == nil {
					return m
				} else if !taken(err) {
					return nil
				}
			}
		})
		leave(t, first)
		m := suite.Wait(t, second)
		require.NotNil(t, m)
		require.Equal(t, []string{"a=second"}, members(t, g))
		leave(t, m)
	})
}

// The member is cut off. The other process gets the name no sooner than the member knows that it
// has lost it.
func TestNameHasOneTrustedMember(t *testing.T) {
	for _, f := range []func(*recipestest.Link){
		(*recipestest.Link).Cut, (*recipestest.Link).Stall, (*recipestest.Link).StallReplies, (*recipestest.Link).Isolate,
	} {
		synctest.Test(t, func(t *testing.T) {
			srv := recipestest.Start(t, recipestest.WithInMemory())
			path, link := srv.Root(t)+"/g", srv.Link(t)
			first := join(t, group.New(link.Client(t), path), "a", "first")
			g := group.New(srv.Client(t), path)
			f(link)
			var second *group.Member
			for second == nil {
				var err error
				if second, err = g.Join(t.Context(), "a", []byte("second")); err != nil {
					require.ErrorIs(t, err, group.ErrNameTaken)
					time.Sleep(10 * time.Millisecond)
				}
			}
			require.False(t, first.Joined(), "two members have the name")
			link.Heal()
			time.Sleep(time.Minute)
			require.True(t, second.Joined())
			require.False(t, first.Joined())
			leave(t, second)
			joined(t, first, true)
			leave(t, first)
		})
	}
}

// A loss and its end are told of, and the channel ends with the membership.
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

func TestLeaveOfAMemberThatWasLostWaitsForItsFormerSession(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link, closing := srv.Root(t)+"/g", srv.Link(t), &suite.Gate{Op: recipestest.OpClose}
		c := link.Client(t, closing.Option(link))
		g := group.New(c, path)
		m := join(t, g, "a", "")
		closing.Shut() // the client cannot close its lost session, which has to expire
		link.Stall()
		joined(t, m, false)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, m.Leave(ctx), context.DeadlineExceeded)
		require.ErrorIs(t, m.Set(t.Context(), nil), protocol.ErrReleased)
		link.Heal()
		require.NoError(t, m.Leave(t.Context()))
		require.Empty(t, suite.Children(t, c, path))
		closing.Open()
		leave(t, join(t, g, "a", ""))
	})
}

func TestLeaveWithADoneContextStillLeaves(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path, c := srv.Root(t)+"/g", srv.Client(t)
		g := group.New(c, path)
		m := join(t, g, "a", "")
		done, cancel := context.WithCancel(t.Context())
		cancel()
		if err := m.Leave(done); err != nil {
			require.ErrorIs(t, err, context.Canceled)
		}
		require.False(t, m.Joined())
		leave(t, m)
		require.Empty(t, members(t, g))
		_, err := g.Join(done, "a", nil)
		require.ErrorIs(t, err, context.Canceled)
		leave(t, join(t, g, "a", ""))
	})
}

func TestCloseEndsMemberships(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path, c := srv.Root(t)+"/g", srv.Client(t)
		g := group.New(c, path)
		m, waiting := join(t, g, "a", ""), join(t, g, "b", "")
		other := srv.Client(t)
		_, err := suite.Session(t, other).Multi(t.Context(),
			&zk.DeleteRequest{Path: path + "/b", Version: -1},
			&zk.CreateRequest{Path: path + "/b", Flags: zk.FlagEphemeral})
		require.NoError(t, err)
		joined(t, waiting, false)
		set := suite.Later(func() error { return waiting.Set(t.Context(), nil) })
		suite.Close(t, c)
		require.ErrorIs(t, suite.Wait(t, set), protocol.ErrClosed)
		for _, m := range []*group.Member{m, waiting} {
			require.False(t, m.Joined())
			require.ErrorIs(t, m.Leave(t.Context()), protocol.ErrClosed)
			for range m.Changes() {
			}
		}
		suite.CatchUp(t, other)
		require.Equal(t, []string{"b"}, suite.Children(t, other, path))
		_, err = g.Join(t.Context(), "c", nil)
		require.ErrorIs(t, err, protocol.ErrClosed)
		suite.Close(t, other)
	})
}

func TestSetReplacesTheData(t *testing.T) {
	suite.Each(t, func(t *testing.T, srv *recipestest.Server) {
		path, c := srv.Root(t)+"/g", srv.Client(t)
		link := srv.Link(t)
		g := group.New(c, path)
		m := join(t, group.New(link.Client(t), path), "a", "0")
		for i := range 3 {
			link.LoseReply(recipestest.OpSetData, i)
			require.NoError(t, m.Set(t.Context(), fmt.Appendf(nil, "%d", i)))
			require.Equal(t, []string{fmt.Sprintf("a=%d", i)}, members(t, g))
		}

		var all suite.Group
		for i := range 5 {
			all.Go(func() error { return m.Set(t.Context(), fmt.Appendf(nil, "%d", i)) })
		}
		require.NoError(t, all.Wait())
		leave(t, m)
		require.ErrorIs(t, m.Set(t.Context(), nil), protocol.ErrReleased)
	})
}

// The caller has left when the member joins again. Its data counts all the same.
func TestDataThatIsSetWhileNotJoinedIsJoinedWith(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link := srv.Root(t)+"/g", srv.Link(t)
		m := join(t, group.New(link.Client(t), path), "a", "old")
		link.Stall()
		joined(t, m, false)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, m.Set(ctx, []byte("new")), context.DeadlineExceeded)
		link.Heal()
		joined(t, m, true)
		require.Equal(t, []string{"a=new"}, members(t, group.New(srv.Client(t), path)))
		leave(t, m)
	})
}

// The data is replaced while the node is being created with the old data.
func TestDataThatIsSetAtAnyStepOfARejoinCounts(t *testing.T) {
	suite.Sweep(t, func(step int) (met bool) {
		synctest.Test(t, func(t *testing.T) {
			srv := recipestest.Start(t, recipestest.WithInMemory())
			path, link := srv.Root(t)+"/g", srv.Link(t)
			c := link.Client(t)
			m := join(t, group.New(c, path), "a", "old")
			time.Sleep(time.Second)
			link.Cut()
			joined(t, m, false)
			was := false
			over := suite.At(link, step, func() {
				time.Sleep(time.Microsecond) // until all else waits
				was = m.Joined()
				ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
				defer cancel()
				if err := m.Set(ctx, []byte("new")); err != nil { // it waits behind the packet, unless that is of an old connection
					assert.ErrorIs(t, err, context.DeadlineExceeded)
				}
			})
			link.Heal()
			joined(t, m, true)
			time.Sleep(100 * time.Millisecond)
			if met = over(); met {
				g := group.New(srv.Client(t), path)
				if got := members(t, g); got[0] != "a=new" {
					require.True(t, was, "step %d: data that was set before the member had joined", step)
					s := suite.Session(t, c)
					srv.ExpireSession(s.ID())
					<-s.Done()
					joined(t, m, true)
					require.Equal(t, []string{"a=new"}, members(t, g))
				}
			}
			leave(t, m)
		})
		return met
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
		<-s.Done()
		joined(t, m, true)
		require.Equal(t, []string{"a=old"}, members(t, group.New(c, path)))
		leave(t, m)
	})
}

// A name that cannot be had, whatever the reason, is asked for again at the pace of the back-off.
func TestRejoinIsPaced(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link := srv.Root(t)+"/g", srv.Link(t)
		c := link.Client(t)
		m := join(t, group.New(c, path), "a", "")
		other := join(t, group.New(srv.Client(t), path), "other", "") // or the path would be deleted
		operator := suite.Session(t, srv.Client(t)).Conn()
		_, err := operator.SetACL(path, zk.WorldACL(zk.PermRead|zk.PermAdmin), -1)
		require.NoError(t, err)
		s := suite.Session(t, c)
		srv.ExpireSession(s.ID())
		<-s.Done()
		before := link.Count(recipestest.OpCreate)
		time.Sleep(time.Minute)
		require.False(t, m.Joined())
		require.Less(t, link.Count(recipestest.OpCreate)-before, 60)
		require.Greater(t, link.Count(recipestest.OpCreate)-before, 10)
		_, err = operator.SetACL(path, zk.WorldACL(zk.PermAll), -1)
		require.NoError(t, err)
		joined(t, m, true)
		leave(t, m, other)
	})
}

// A member that has lost its name to another one lets it have it, for as long as it wants.
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

// The successor belongs to another identity, and a server like 3.9 hides even the Stat of its node.
func TestLostMemberLeavesItsHiddenSuccessorAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := recipestest.Start(t, recipestest.WithInMemory(), like39)
		path, other := srv.Root(t)+"/g", srv.Client(t)
		g := group.New(srv.Client(t), path)
		m := join(t, g, "a", "mine")
		time.Sleep(time.Second)
		secret := []zk.ACL{{Perms: zk.PermAll, Scheme: "digest", ID: "alice:secret"}}
		_, err := suite.Session(t, other).Multi(t.Context(),
			&zk.DeleteRequest{Path: path + "/a", Version: -1},
			&zk.CreateRequest{Path: path + "/a", Acl: secret, Flags: zk.FlagEphemeral})
		require.NoError(t, err)

		time.Sleep(time.Minute)

		require.False(t, m.Joined())
		require.Equal(t, []string{"a="}, members(t, g))
		suite.Close(t, other)
		joined(t, m, true)
		require.Equal(t, []string{"a=mine"}, members(t, g))
		leave(t, m)
	})
}

// A member that cannot join again pauses for longer than Close waits for it.
func TestCloseEndsAMemberThatCannotJoinAgain(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, c := srv.Root(t)+"/g", srv.Client(t)
		impatient := c.With(protocol.WithBackOff(func() backoff.BackOff { return &backoff.StopBackOff{} }))
		m := join(t, group.New(impatient, path), "a", "")
		conn := suite.Session(t, srv.Client(t)).Conn()
		_, err := conn.SetACL(path, zk.WorldACL(zk.PermRead|zk.PermDelete), -1)
		require.NoError(t, err)
		require.NoError(t, conn.Delete(path+"/a", -1))
		joined(t, m, false)
		time.Sleep(time.Second)

		began := time.Now()
		suite.Close(t, c)
		require.Zero(t, time.Since(began))
		_, open := <-m.Changes()
		require.False(t, open)
		require.Zero(t, time.Since(began))
		require.ErrorIs(t, m.Leave(t.Context()), protocol.ErrClosed)
	})
}

// A member that tries to join again finds that another one of its client has the name, and joins
// once that has left.
func TestMemberWaitsForTheNameThatAnotherOfItsClientHas(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, c := srv.Root(t)+"/g", srv.Client(t)
		impatient := c.With(protocol.WithBackOff(func() backoff.BackOff { return &backoff.StopBackOff{} }))
		first := join(t, group.New(impatient, path), "a", "first")
		stays := join(t, group.New(c, path), "stays", "") // or the path would be deleted
		conn := suite.Session(t, srv.Client(t)).Conn()
		_, err := conn.SetACL(path, zk.WorldACL(zk.PermRead|zk.PermDelete|zk.PermAdmin), -1)
		require.NoError(t, err)
		require.NoError(t, conn.Delete(path+"/a", -1))
		joined(t, first, false)
		time.Sleep(time.Second) // it pauses for longer than that
		_, err = conn.SetACL(path, zk.WorldACL(zk.PermAll), -1)
		require.NoError(t, err)

		second := join(t, group.New(c, path), "a", "second")
		time.Sleep(time.Minute)
		require.False(t, first.Joined())
		require.True(t, second.Joined())
		leave(t, second)
		joined(t, first, true)
		leave(t, first, stays)
	})
}

// Another client deletes the nodes while the members, which have just joined again, set their data.
// Then they leave. Which of the two a member finds first is left to chance.
func TestNameIsFreeAfterALeaveWhoseNodeWasDeleted(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link, sets := srv.Root(t)+"/g", srv.Link(t), &suite.Gate{Op: recipestest.OpSetData}
		c := link.Client(t, sets.Option(link))
		g, operator := group.New(c, path), suite.Session(t, srv.Client(t))
		suite.Keep(t, srv.Client(t), path)
		var all []*group.Member
		for i := range 16 {
			all = append(all, join(t, g, fmt.Sprint(i), "old"))
		}
		deleteAll := func() {
			time.Sleep(time.Second) // the nodes are watched
			for _, m := range all {
				require.NoError(t, operator.Delete(t.Context(), path+"/"+m.Name(), -1))
			}
		}

		// The data is replaced while the nodes are created with the old data.
		link.Delay(100 * time.Millisecond)
		created := link.Sent(recipestest.OpCreate, link.Count(recipestest.OpCreate)+len(all))
		deleteAll()
		suite.Wait(t, created)
		sets.Shut()
		for _, m := range all {
			ctx := suite.Within(t, time.Millisecond)
			require.ErrorIs(t, m.Set(ctx, []byte("new")), context.DeadlineExceeded)
		}
		link.Delay(0)
		time.Sleep(time.Second)
		require.True(t, sets.Holding())

		deleteAll()
		time.Sleep(time.Second)
		for _, m := range all {
			leave(t, m)
		}

		sets.Open()
		for _, m := range all {
			leave(t, join(t, g, m.Name(), ""))
		}
	})
}

// The client cannot end its lost session, which has a node of this name.
func TestJoinThatCannotWaitForItsLostSessionSaysWhy(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link, closing := srv.Root(t)+"/g", srv.Link(t), &suite.Gate{Op: recipestest.OpClose}
		suite.Keep(t, srv.Client(t), path)
		c := link.Client(t, closing.Option(link))
		lost := suite.Session(t, c)
		closing.Shut()
		over := suite.At(link, 2, link.StallReplies) // the create is executed
		failed := suite.Later(func() error {
			_, err := group.New(c, path).Join(suite.Within(t, time.Hour), "a", nil)
			return err
		})
		suite.Wait(t, lost.Done())
		require.True(t, over())

		link.Fail(recipestest.OpGetData, path+"/a", noAuth, 1)
		link.Heal()

		require.ErrorIs(t, suite.Wait(t, failed), zk.ErrNoAuth)
		closing.Open()
	})
}

// The member has not heard of the deletion yet.
func TestLeaveOfAMemberWhoseNodeWasJustDeleted(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, c, operator := srv.Root(t)+"/g", srv.Client(t), suite.Session(t, srv.Client(t))
		m := join(t, group.New(c, path), "a", "")
		require.NoError(t, operator.Delete(t.Context(), path+"/a", -1))
		require.True(t, m.Joined())
		leave(t, m)
		leave(t, join(t, group.New(c, path), "a", ""))
	})
}

// The connection breaks before the create is executed, and the caller stops waiting.
func TestCancelledJoinSendsNothingLater(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link := srv.Root(t)+"/g", srv.Link(t)
		c := link.Client(t)
		suite.Session(t, c)
		over := suite.At(link, 1, link.Cut)
		_, err := group.New(c, path).Join(suite.Within(t, time.Second), "a", nil)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.True(t, over())

		link.Heal()
		time.Sleep(time.Minute)

		require.Zero(t, link.Count(recipestest.OpCreate))
		require.NoError(t, suite.Session(t, c).Err())
	})
}
