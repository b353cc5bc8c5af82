package protocol_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// written counts how often a node was written, and names its children.
func written(t *testing.T, c *protocol.Client, path string) (version int32, children []string) {
	t.Helper()
	s := session(t, c)
	_, stat, err := s.Get(lasting(t), path)
	require.NoError(t, err)
	children, _, err = s.Children(lasting(t), path)
	require.NoError(t, err)
	return stat.Version, children
}

// makes creates a persistent node.
func makes(t *testing.T, c *protocol.Client, path string) string {
	t.Helper()
	require.NoError(t, session(t, c).Create(lasting(t), path, nil, 0))
	return path
}

func receiptsAt(t *testing.T, c *protocol.Client, path string) (all []string) {
	t.Helper()
	children, _, err := session(t, c).Children(lasting(t), path)
	require.NoError(t, err)
	for _, child := range children {
		if strings.HasPrefix(child, "receipt-") {
			all = append(all, child)
		}
	}
	return all
}

func TestMultiRefusesBadOperationsBeforeAnythingIsSent(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link := srv.Link(t)
		g := hold(t, link.Client(t), srv.Root(t)+"/line")
		time.Sleep(time.Second) // until the node is watched
		before := link.Count(recipestest.OpAny)
		var none *zk.SetDataRequest
		good := &zk.CheckVersionRequest{Path: "/a", Version: -1}
		for _, bad := range []struct {
			ops  []any
			want error
		}{
			{nil, zk.ErrBadArguments},
			{[]any{good, nil}, zk.ErrBadArguments},
			{[]any{good, none}, zk.ErrBadArguments},
			{[]any{zk.CheckVersionRequest{Path: "/a"}}, zk.ErrBadArguments},
			{[]any{&zk.CreateRequest{Path: "/a", Flags: zk.FlagTTL}}, zk.ErrBadArguments},
			{[]any{&zk.DeleteRequest{Path: "a"}}, zk.ErrInvalidPath},
			{[]any{&zk.CreateRequest{Path: "/a/"}}, zk.ErrInvalidPath},
			{[]any{&zk.SetDataRequest{Path: "/a", Data: make([]byte, 1<<20)}}, protocol.ErrTooLarge},
		} {
			_, err := g.Multi(lasting(t), bad.ops...)
			require.ErrorIs(t, err, bad.want)
			if len(bad.ops) == 2 {
				require.ErrorContains(t, err, "operation 2 of 2")
			}
		}
		var nobody context.Context
		_, err := g.Multi(nobody, good)
		require.ErrorContains(t, err, "nil context")
		require.Equal(t, before, link.Count(recipestest.OpAny))
		release(t, g)
	})
}

// The reply is lost of the first transaction and of a later one, and the next server lags. Nothing
// is done twice, and the answers are those that were lost.
func TestMultiWhoseReplyIsLostIsNotRepeated(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		root, link, follower := srv.Root(t), srv.Link(t), srv.Embedded().Follower()
		g := hold(t, link.Client(t), root+"/line")
		node := makes(t, srv.Client(t), root+"/node")
		follower.Lag(300 * time.Millisecond)
		link.Move(follower)
		for n := 1; n <= 3; n++ {
			link.LoseReply(recipestest.OpMulti, 1)
			answers, err := g.Multi(lasting(t),
				&zk.SetDataRequest{Path: node, Version: int32(n - 1)},
				&zk.CreateRequest{Path: node + "/x-", Flags: zk.FlagSequence},
				&zk.CreateRequest{Path: node + "/x-", Flags: zk.FlagEphemeralSequential},
				&zk.CreateRequest{Path: fmt.Sprint(node, "/", n)},
				&zk.DeleteRequest{Path: fmt.Sprint(node, "/", n)},
				&zk.CheckVersionRequest{Path: node, Version: int32(n)})
			require.NoError(t, err)
			require.Len(t, answers, 6)
			require.EqualValues(t, n, answers[0].Stat.Version)
			require.Equal(t, fmt.Sprintf("%s/x-%010d", node, 3*(n-1)), answers[1].String)
			require.Equal(t, fmt.Sprintf("%s/x-%010d", node, 3*(n-1)+1), answers[2].String)
			require.Equal(t, fmt.Sprint(node, "/", n), answers[3].String)

			time.Sleep(time.Second) // until the other server has heard of it
			version, children := written(t, srv.Client(t), node)
			require.EqualValues(t, n, version)
			require.Len(t, children, 2*n)
		}
		require.Len(t, receiptsAt(t, srv.Client(t), root+"/line"), 1)
		taken := g.Session().EphemeralBytes()
		for _, n := range []int{1, 4, 7} { // the ephemeral ones
			require.NoError(t, g.Session().Delete(lasting(t), fmt.Sprintf("%s/x-%010d", node, n), -1))
		}
		require.Equal(t, taken-3*len(node+"/x-0123456789")-3*4, g.Session().EphemeralBytes())
		release(t, g)
		time.Sleep(time.Second)
		require.Empty(t, receiptsAt(t, srv.Client(t), root+"/line"))
		require.Zero(t, g.Session().EphemeralBytes())
	})
}

// The reply is lost, and a consumer has taken the sequential node: nobody can tell its name.
func TestMultiWhoseResultIsGoneIsUncertain(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		root, link := srv.Root(t), srv.Link(t)
		g := hold(t, link.Client(t), root+"/line")
		node := makes(t, srv.Client(t), root+"/node")
		consumer := session(t, srv.Client(t))
		time.Sleep(time.Second)
		link.Meet(2, func([]string) { // before the answer passes
			require.NoError(t, consumer.Delete(lasting(t), node+"/x-0000000000", -1))
			link.Cut()
			link.Heal()
		})
		_, err := g.Multi(lasting(t), &zk.CreateRequest{Path: node + "/x-", Flags: zk.FlagSequence})
		require.ErrorIs(t, err, protocol.ErrUncertain)
		require.ErrorContains(t, err, "it was done")
		release(t, g)
	})
}

func TestMultiIsBelowTheChrootAndHasTheViewsACL(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		makes(t, srv.Client(t), "/app")
		c, err := protocol.Connect(lasting(t), srv.ConnectString()+"/app", protocol.WithDialer(srv.Dial))
		require.NoError(t, err)
		defer c.Close()
		acl := zk.WorldACL(zk.PermAll &^ zk.PermAdmin)
		g := hold(t, c.With(protocol.WithACL(acl)), "/line")
		before := session(t, c).EphemeralBytes()
		answers, err := g.Multi(lasting(t), &zk.CreateRequest{Path: "/made", Acl: []zk.ACL{}, Flags: zk.FlagEphemeral})
		require.NoError(t, err)
		require.Equal(t, "/made", answers[0].String)
		require.Greater(t, session(t, c).EphemeralBytes(), before+len("/app/made"))
		for _, path := range []string{"/app/made", "/app/line/" + receiptsAt(t, c, "/line")[0]} {
			got, _, err := srv.Conn(t).GetACL(path)
			require.NoError(t, err)
			require.Equal(t, acl, got, path)
		}
		release(t, g)
		_, err = g.Multi(lasting(t), &zk.CreateRequest{Path: "/late"})
		require.ErrorIs(t, err, protocol.ErrReleased)
	})
}

// The node is deleted before anything watches it: the transaction finds that out, and ends the grant.
func TestMultiOfALostGrantDoesNothing(t *testing.T) {
	each(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/line"
		g := hold(t, srv.Client(t), path)
		require.NoError(t, session(t, srv.Client(t)).Delete(lasting(t), path+"/"+g.Node(), -1))
		_, err := g.Multi(lasting(t), &zk.CreateRequest{Path: path + "/x"})
		require.ErrorIs(t, err, protocol.ErrLost)
		require.ErrorIs(t, err, protocol.ErrNodeDeleted)
		require.ErrorIs(t, g.Err(), protocol.ErrLost)
		require.False(t, exists(t, srv.Client(t), path+"/x"))
	})
}

// A reply is lost, on whatever server.
func TestMultiFindsOutWhatWasDone(t *testing.T) {
	each(t, func(t *testing.T, srv *recipestest.Server) {
		root, link := srv.Root(t), srv.Link(t)
		g := hold(t, link.Client(t), root+"/line")
		node := makes(t, srv.Client(t), root+"/node")
		for n := range 2 {
			link.LoseReply(recipestest.OpMulti, 1)
			answers, err := g.Multi(lasting(t),
				&zk.SetDataRequest{Path: node, Version: -1}, &zk.CreateRequest{Path: node + "/x-", Flags: zk.FlagSequence})
			require.NoError(t, err)
			require.EqualValues(t, n+1, answers[0].Stat.Version)
			require.Equal(t, fmt.Sprintf("%s/x-%010d", node, n), answers[1].String)
			version, children := written(t, srv.Client(t), node)
			require.EqualValues(t, n+1, version)
			require.Len(t, children, n+1)
		}
		release(t, g)
	})
}

func TestMultiSaysWhichOperationWasRefused(t *testing.T) {
	each(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/line"
		g := hold(t, srv.Client(t), path)
		node := makes(t, srv.Client(t), path+"/node")
		answers, err := g.Multi(lasting(t),
			&zk.SetDataRequest{Path: node, Version: -1}, &zk.DeleteRequest{Path: path + "/none", Version: -1}, &zk.CreateRequest{Path: path + "/x"})
		require.ErrorIs(t, err, zk.ErrNoNode)
		require.NotErrorIs(t, err, protocol.ErrLost)
		require.ErrorContains(t, err, "operation 2 of 3")
		require.Len(t, answers, 3)
		require.NoError(t, answers[0].Error)
		require.ErrorIs(t, answers[1].Error, zk.ErrNoNode)
		version, _ := written(t, srv.Client(t), node)
		require.Zero(t, version)
		require.NoError(t, g.Err())
		release(t, g)

		blind := hold(t, srv.Client(t, protocol.WithACL(zk.WorldACL(zk.PermAll&^zk.PermRead))), path)
		_, err = blind.Multi(lasting(t), &zk.SetDataRequest{Path: node, Version: -1})
		require.ErrorIs(t, err, zk.ErrNoAuth)
		require.NotContains(t, err.Error(), "operation")
		release(t, blind)
	})
}

// An error of which a caller may conclude that nothing was done is none that leaves it open.
func TestMultiThatIsUncertainIsNotLost(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		root, link := srv.Root(t), srv.Link(t)
		g := hold(t, link.Client(t), root+"/line")
		time.Sleep(time.Second)
		link.Meet(1, func([]string) {
			srv.ExpireSession(g.Session().ID())
			link.Cut()
			link.Heal()
		})
		_, err := g.Multi(lasting(t), &zk.CreateRequest{Path: root + "/x"})
		require.ErrorIs(t, err, protocol.ErrUncertain)
		require.NotErrorIs(t, err, protocol.ErrLost)
		require.ErrorContains(t, err, "lost")
		require.ErrorIs(t, g.Err(), protocol.ErrLost)
	})
}

// An operator deletes all nodes of the line while the reply is on its way: what Multi has done is
// there, and no receipt says so.
func TestMultiWhoseLineIsDeletedIsUncertain(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		root, link, operator := srv.Root(t), srv.Link(t), session(t, srv.Client(t))
		g := hold(t, link.Client(t), root+"/line")
		time.Sleep(time.Second)
		link.Meet(2, func([]string) { // before the answer passes
			children, _, err := operator.Children(lasting(t), root+"/line")
			require.NoError(t, err)
			for _, child := range children {
				require.NoError(t, operator.Delete(lasting(t), root+"/line/"+child, -1))
			}
			link.Cut()
			link.Heal()
		})
		_, err := g.Multi(lasting(t), &zk.CreateRequest{Path: root + "/x"})
		require.ErrorIs(t, err, protocol.ErrUncertain)
		require.NotErrorIs(t, err, protocol.ErrLost)
		require.True(t, exists(t, srv.Client(t), root+"/x"))
	})
}

// Concurrent calls have a receipt each, and nothing is left of those whose outcome nobody waits for.
func TestReceiptsGoWithTheGrant(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		root, link := srv.Root(t), srv.Link(t)
		c := link.Client(t)
		g := hold(t, c, root+"/line")
		node := makes(t, c, root+"/node")
		link.Delay(time.Millisecond)
		var group suite.Group
		for range 5 {
			group.Go(func() error {
				_, err := g.Multi(lasting(t), &zk.CreateRequest{Path: node + "/x-", Flags: zk.FlagSequence})
				return err
			})
		}
		require.NoError(t, group.Wait())
		_, children := written(t, c, node)
		require.Len(t, children, 5)
		require.Len(t, receiptsAt(t, c, root+"/line"), 5)

		ctx, cancel := context.WithCancel(t.Context())
		link.Meet(1, func([]string) { cancel() })
		_, err := g.Multi(ctx, &zk.CreateRequest{Path: node + "/x-", Flags: zk.FlagSequence})
		require.ErrorIs(t, err, protocol.ErrUncertain)
		require.ErrorIs(t, err, context.Canceled)
		release(t, g)
		time.Sleep(time.Second)
		require.Empty(t, receiptsAt(t, c, root+"/line"))
		require.Zero(t, session(t, c).EphemeralBytes())
	})
}

func TestMultiGoesOnWithoutItsReceipt(t *testing.T) {
	each(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/line"
		g := hold(t, srv.Client(t), path)
		node := makes(t, srv.Client(t), path+"/node")
		for range 2 {
			_, err := g.Multi(lasting(t), &zk.SetDataRequest{Path: node, Version: -1})
			require.NoError(t, err)
			all := receiptsAt(t, srv.Client(t), path)
			require.Len(t, all, 1)
			require.NoError(t, session(t, srv.Client(t)).Delete(lasting(t), path+"/"+all[0], -1))
		}
		version, _ := written(t, srv.Client(t), node)
		require.EqualValues(t, 2, version)
		release(t, g)
	})
}

// A transaction is one request, and wakes nobody in line.
func TestMultiWakesNobodyInLine(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link, behind := srv.Root(t)+"/line", srv.Link(t), srv.Link(t)
		g := hold(t, link.Client(t), path)
		node := makes(t, srv.Client(t), path+"/node")
		waiter := later(func() *recipe.Grant { return hold(t, behind.Client(t), path) })
		time.Sleep(time.Second)
		synctest.Wait()
		packets, asked := behind.Packets(), link.Count(recipestest.OpAny)
		began := time.Now()
		for range 100 {
			_, err := g.Multi(lasting(t), &zk.SetDataRequest{Path: node, Version: -1})
			require.NoError(t, err)
		}
		synctest.Wait()
		require.Zero(t, time.Since(began)) // so there were no proofs and no pings
		require.Equal(t, asked+100, link.Count(recipestest.OpAny))
		require.Equal(t, packets, behind.Packets())
		release(t, g)
		release(t, wait(t, waiter))
	})
}

func TestMultiHeldChecksAllGrants(t *testing.T) {
	each(t, func(t *testing.T, srv *recipestest.Server) {
		root, c := srv.Root(t), srv.Client(t)
		a, b, other := hold(t, c, root+"/a"), hold(t, c, root+"/b"), hold(t, srv.Client(t), root+"/c")
		node := makes(t, c, root+"/node")
		set := &zk.SetDataRequest{Path: node, Version: -1}
		_, err := recipe.MultiHeld(lasting(t), []*recipe.Grant{a, b}, set)
		require.NoError(t, err)
		_, err = recipe.MultiHeld(lasting(t), []*recipe.Grant{a, other}, set)
		require.ErrorIs(t, err, zk.ErrBadArguments)
		require.NoError(t, session(t, srv.Client(t)).Delete(lasting(t), root+"/b/"+b.Node(), -1))
		_, err = recipe.MultiHeld(lasting(t), []*recipe.Grant{a, b}, set)
		require.ErrorIs(t, err, protocol.ErrLost)
		require.ErrorContains(t, err, root+"/b")
		version, _ := written(t, c, node)
		require.EqualValues(t, 1, version)
		release(t, a)
		release(t, other)
	})
}
