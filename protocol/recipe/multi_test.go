package recipe_test

import (
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
	_, stat := suite.Get(t, c, path)
	return stat.Version, suite.Children(t, c, path)
}

// makes creates a persistent node.
func makes(t *testing.T, c *protocol.Client, path string) string {
	t.Helper()
	require.NoError(t, suite.Session(t, c).Create(suite.Lasting(t), path, nil, 0))
	return path
}

func receiptsAt(t *testing.T, c *protocol.Client, path string) (all []string) {
	t.Helper()
	for _, child := range suite.Children(t, c, path) {
		if strings.HasPrefix(child, "receipt-") {
			all = append(all, child)
		}
	}
	return all
}

func TestMultiRefusesBadOperationsBeforeAnythingIsSent(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link := srv.Link(t)
		g := suite.Hold(t, link.Client(t), srv.Root(t)+"/line")
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
			_, err := g.Multi(suite.Lasting(t), bad.ops...)
			require.ErrorIs(t, err, bad.want)
			if len(bad.ops) == 2 {
				require.ErrorContains(t, err, "operation 2 of 2")
			}
		}

		require.Equal(t, before, link.Count(recipestest.OpAny))
		suite.Release(t, g)
		before = link.Count(recipestest.OpAny)
		require.ErrorIs(t, suite.Err(g.Multi(suite.Lasting(t), &zk.CreateRequest{Path: "/late"})), protocol.ErrReleased)
		require.ErrorIs(t, g.SetData(suite.Lasting(t), nil), protocol.ErrReleased)
		require.Equal(t, before, link.Count(recipestest.OpAny))
	})
}

// The reply is lost of the first transaction and of a later one, and the next server lags. Nothing
// is done twice, and the answers say what the lost ones said.
func TestMultiWhoseReplyIsLostIsNotRepeated(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		root, link, follower := srv.Root(t), srv.Link(t), srv.Embedded().Follower()
		g := suite.Hold(t, link.Client(t), root+"/line")
		node := makes(t, srv.Client(t), root+"/node")
		follower.Lag(300 * time.Millisecond)
		link.Move(follower)

		for n := 1; n <= 3; n++ {
			link.LoseReply(recipestest.OpMulti, 1)
			answers, err := g.Multi(suite.Lasting(t),
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

		// The persistent nodes have the same prefix, and are not in the account.
		require.NoError(t, g.Session().Delete(suite.Lasting(t), node+"/x-0000000000", -1))
		require.Equal(t, taken, g.Session().EphemeralBytes())

		for _, n := range []int{1, 4, 7} { // the ephemeral ones
			require.NoError(t, g.Session().Delete(suite.Lasting(t), fmt.Sprintf("%s/x-%010d", node, n), -1))
		}

		require.Equal(t, taken-3*len(node+"/x-0123456789")-3*4, g.Session().EphemeralBytes())
		suite.Release(t, g)
		time.Sleep(time.Second)
		require.Empty(t, receiptsAt(t, srv.Client(t), root+"/line"))
		require.Zero(t, g.Session().EphemeralBytes())
	})
}

// The reply is lost, and nobody can tell any more what it said: a consumer has taken the sequential
// node, and its name with it, an operator has deleted all nodes of the line, and the receipt, or
// the session has expired. A caller concludes from ErrLost that nothing was done, so this must not
// wrap it.
func TestMultiWhoseResultIsGoneIsUncertain(t *testing.T) {
	for name, c := range map[string]struct {
		step  int    // 2 is the answer
		swept string // all nodes below it go
		says  string
		lost  bool
	}{
		"node taken":      {2, "/node", "it was done", false},
		"line deleted":    {2, "/line", "", true},
		"session expired": {1, "", "lost", true},
	} {
		suite.Run(t, name, func(t *testing.T, srv *recipestest.Server) {
			root, link, operator := srv.Root(t), srv.Link(t), srv.Client(t)
			other := suite.Session(t, operator)
			g := suite.Hold(t, link.Client(t), root+"/line")
			node := makes(t, srv.Client(t), root+"/node")
			time.Sleep(time.Second)
			link.Meet(c.step, func([]string) {
				if c.swept == "" {
					srv.ExpireSession(g.Session().ID())
				} else {
					for _, child := range suite.Children(t, operator, root+c.swept) {
						require.NoError(t, other.Delete(suite.Lasting(t), root+c.swept+"/"+child, -1))
					}
				}
				suite.Blip(link)
			})

			_, err := g.Multi(suite.Lasting(t), &zk.CreateRequest{Path: node + "/x-", Flags: zk.FlagSequence})
			require.ErrorIs(t, err, protocol.ErrUncertain)
			require.NotErrorIs(t, err, protocol.ErrLost)
			require.ErrorContains(t, err, c.says)
			require.Equal(t, name == "line deleted", suite.Exists(t, srv.Client(t), node+"/x-0000000000"))
			if c.lost {
				suite.Wait(t, g.Done())
				require.ErrorIs(t, g.Err(), protocol.ErrLost)
			} else {
				suite.Release(t, g)
			}
		})
	}
}

// Once a receipt was deleted, it is no proof that the transaction which changed it wasn't executed.
// Later transactions go on without it.
func TestMultiIsNotRepeatedWithoutItsReceipt(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		root, link, other := srv.Root(t), srv.Link(t), suite.Session(t, srv.Client(t))
		g := suite.Hold(t, link.Client(t), root+"/line")
		set := &zk.SetDataRequest{Path: makes(t, srv.Client(t), root+"/node"), Version: -1}
		sweep := func() {
			for _, receipt := range receiptsAt(t, srv.Client(t), root+"/line") {
				require.NoError(t, other.Delete(suite.Lasting(t), root+"/line/"+receipt, -1))
			}
		}
		suite.Got(g.Multi(suite.Lasting(t), set))(t)
		sweep()
		suite.Got(g.Multi(suite.Lasting(t), set))(t)
		time.Sleep(time.Second)
		link.Meet(2, func([]string) {
			sweep()
			suite.Blip(link)
		})

		require.ErrorIs(t, suite.Err(g.Multi(suite.Lasting(t), set)), protocol.ErrUncertain)
		version, _ := written(t, srv.Client(t), set.Path)
		require.EqualValues(t, 3, version)

		suite.Got(g.Multi(suite.Lasting(t), set))(t)
		version, _ = written(t, srv.Client(t), set.Path)
		require.EqualValues(t, 4, version)
		suite.Release(t, g)
	})
}

// The session goes on, so nothing else would delete the receipt.
func TestMultiOnceLeavesNoReceiptWhenItsCallerLeaves(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		root, link := srv.Root(t), srv.Link(t)
		s := suite.Session(t, link.Client(t))
		suite.Ensure(t, s, root)
		link.StallReplies()
		_, err := s.MultiOnce(suite.Within(t, time.Second), s.Receipt(root), false, &zk.CreateRequest{Path: root + "/x"})
		require.ErrorIs(t, err, protocol.ErrUncertain)
		require.True(t, suite.Exists(t, srv.Client(t), root+"/x"))

		link.Heal()
		time.Sleep(5 * time.Second)
		require.Empty(t, receiptsAt(t, srv.Client(t), root))
		require.NoError(t, s.Err())
	})
}

func TestMultiThatIsAnsweredAfterTheReleaseLeavesNoReceipt(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, link := srv.Root(t)+"/line", srv.Link(t)
		g := suite.Hold(t, link.Client(t), path)
		link.Delay(10 * time.Millisecond)
		written := suite.Later(func() error {
			_, err := g.Multi(t.Context(), &zk.CheckVersionRequest{Path: path, Version: -1})
			return err
		})
		synctest.Wait()
		suite.Release(t, g)
		require.NoError(t, suite.Wait(t, written))
		time.Sleep(time.Second)
		require.Empty(t, receiptsAt(t, srv.Client(t), path))
	})
}

func TestMultiSaysWhichOperationWasRefused(t *testing.T) {
	suite.EmbeddedAndReal(t, func(t *testing.T, srv *recipestest.Server) {
		path := srv.Root(t) + "/line"
		link := srv.Link(t)
		g := suite.Hold(t, link.Client(t), path)
		node := makes(t, srv.Client(t), path+"/node")
		suite.Got(g.Multi(suite.Lasting(t), &zk.SetDataRequest{Path: node, Version: -1}))(t)
		before := link.Count(recipestest.OpMulti)
		answers, err := g.Multi(suite.Lasting(t),
			&zk.SetDataRequest{Path: node, Version: -1}, &zk.DeleteRequest{Path: path + "/none", Version: -1}, &zk.CreateRequest{Path: path + "/x"})
		require.ErrorIs(t, err, zk.ErrNoNode)
		require.NotErrorIs(t, err, protocol.ErrLost)
		require.ErrorContains(t, err, "operation 2 of 3")
		require.Len(t, answers, 3)
		require.NoError(t, answers[0].Error)
		require.ErrorIs(t, answers[1].Error, zk.ErrNoNode)
		for _, old := range []any{
			&zk.SetDataRequest{Path: node}, &zk.CheckVersionRequest{Path: node}, &zk.DeleteRequest{Path: node},
		} {
			_, err = g.Multi(suite.Lasting(t), old)
			require.ErrorIs(t, err, zk.ErrBadVersion)
			require.ErrorContains(t, err, "operation 1 of 1")
		}
		require.Equal(t, before+4, link.Count(recipestest.OpMulti), "no other receipt is tried")
		version, _ := written(t, srv.Client(t), node)
		require.EqualValues(t, 1, version)
		require.NoError(t, g.Err())
		suite.Release(t, g)

		blind := suite.Hold(t, srv.Client(t, protocol.WithACL(zk.WorldACL(zk.PermAll&^zk.PermRead))), path)
		_, err = blind.Multi(suite.Lasting(t), &zk.SetDataRequest{Path: node, Version: -1})
		require.ErrorIs(t, err, zk.ErrNoAuth)
		require.ErrorContains(t, err, "its node or receipt")
		suite.Release(t, blind)
	})
}

func TestMultiHeldChecksAllGrants(t *testing.T) {
	suite.EmbeddedAndReal(t, func(t *testing.T, srv *recipestest.Server) {
		root, c := srv.Root(t), srv.Client(t)
		a, b, other := suite.Hold(t, c, root+"/a"), suite.Hold(t, c, root+"/b"), suite.Hold(t, srv.Client(t), root+"/c")
		node := makes(t, c, root+"/node")
		set := &zk.SetDataRequest{Path: node, Version: -1}
		suite.Got(recipe.MultiHeld(suite.Lasting(t), []*recipe.Grant{a, b}, set))(t)
		_, err := recipe.MultiHeld(suite.Lasting(t), []*recipe.Grant{a, other}, set)
		require.ErrorIs(t, err, zk.ErrBadArguments)
		require.NoError(t, suite.Session(t, srv.Client(t)).Delete(suite.Lasting(t), root+"/b/"+b.Node(), -1))
		_, err = recipe.MultiHeld(suite.Lasting(t), []*recipe.Grant{a, b}, set)
		require.ErrorIs(t, err, protocol.ErrLost)
		require.ErrorContains(t, err, root+"/b")
		version, _ := written(t, c, node)
		require.EqualValues(t, 1, version)
		suite.Release(t, a)
		suite.Release(t, other)
	})
}
