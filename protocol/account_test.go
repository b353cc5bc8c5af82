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
	"github.com/zkrecipes/zkrecipes/protocol/line"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

const mostEphemeral = 1_500_000

// fill creates ephemeral nodes at long paths through s until there is no more room. It returns
// their paths.
func fill(t testing.TB, s *recipe.Session, dir string) (paths []string) {
	t.Helper()
	for i := 0; ; i++ {
		path := fmt.Sprintf("%s/%05d-%s", dir, i, strings.Repeat("f", 9000))
		if err := s.Create(suite.Lasting(t), path, nil, zk.FlagEphemeral); err != nil {
			require.ErrorIs(t, err, protocol.ErrSessionFull)
			return paths
		}
		paths = append(paths, path)
	}
}

func TestSessionIsFullBeforeAServerCannotEndIt(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		root, link := srv.Root(t), srv.Link(t)
		c := link.Client(t)
		s := suite.Session(t, c)
		suite.Ensure(t, s, root)
		require.Zero(t, s.EphemeralBytes())

		paths := fill(t, s, root)
		require.LessOrEqual(t, s.EphemeralBytes(), mostEphemeral)
		require.Greater(t, s.EphemeralBytes(), mostEphemeral-10_000)
		require.Equal(t, len(paths)*(len(s.Path(paths[0]))+4), s.EphemeralBytes())

		// All views and recipes draw on the same account, and nothing is sent.
		time.Sleep(2 * time.Minute) // then the client looks again for nodes that others have deleted
		view := suite.Session(t, c.With(protocol.WithACL(zk.WorldACL(zk.PermAll))))
		long := root + "/" + strings.Repeat("g", 9000)
		creates, multis := link.Count(recipestest.OpCreate), link.Count(recipestest.OpMulti)
		require.ErrorIs(t, view.Create(suite.Lasting(t), long, nil, zk.FlagEphemeral), protocol.ErrSessionFull)
		answers, err := view.Multi(suite.Lasting(t),
			&zk.CreateRequest{Path: root + "/g"}, &zk.CreateRequest{Path: long, Flags: zk.FlagEphemeralSequential})
		require.ErrorIs(t, err, protocol.ErrSessionFull)
		require.ErrorIs(t, answers[1].Error, protocol.ErrSessionFull)
		_, err = suite.LineAt(c, long).Enter(suite.Lasting(t), suite.Request)
		require.ErrorIs(t, err, protocol.ErrSessionFull)
		require.Equal(t, creates, link.Count(recipestest.OpCreate))
		require.Equal(t, multis, link.Count(recipestest.OpMulti))

		// Neither a persistent node nor a node that its own transaction deletes takes room.
		require.NoError(t, s.Create(suite.Lasting(t), long, nil, 0))
		require.NoError(t, s.Delete(suite.Lasting(t), long, -1))
		suite.Got(s.Multi(suite.Lasting(t), &zk.CreateRequest{Path: long, Flags: zk.FlagEphemeral}, &zk.DeleteRequest{Path: long, Version: -1}))(t)

		// A node that goes makes room for another node, even in the same transaction and at the
		// same path.
		_, err = s.Multi(suite.Lasting(t), &zk.CreateRequest{Path: long, Flags: zk.FlagEphemeral}, &zk.DeleteRequest{Path: paths[0], Version: -1})
		require.NoError(t, err)
		before := s.EphemeralBytes()
		suite.Got(s.Multi(suite.Lasting(t), &zk.DeleteRequest{Path: long, Version: -1}, &zk.CreateRequest{Path: long, Flags: zk.FlagEphemeral}))(t)
		require.Equal(t, before, s.EphemeralBytes())
		require.NoError(t, s.Delete(suite.Lasting(t), long, -1))

		for _, path := range paths[1:] {
			require.NoError(t, s.Delete(suite.Lasting(t), path, -1))
		}

		require.Zero(t, s.EphemeralBytes())
	})
}

// Whatever packet is lost, the account has the nodes that are there, and none when all have gone.
func TestAccountIsRightWhateverPacketIsLost(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link, root := srv.Link(t), srv.Root(t)
		c, other := link.Client(t), suite.Session(t, srv.Client(t))
		s := suite.Session(t, c)

		for step := 1; ; step++ {
			path := fmt.Sprintf("%s/%d", root, step)
			stop := link.At(step, func() { link.LoseReply(recipestest.OpAny, 2) })
			g := suite.Hold(t, c, path)
			names, _, err := other.Children(suite.Lasting(t), path)
			require.NoError(t, err)
			require.Len(t, names, 1)
			require.Equal(t, len(s.Path(path+"/"+names[0]))+4, s.EphemeralBytes(), "step %d", step)

			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, err = suite.LineAt(c, path).Enter(ctx, suite.Request)
			cancel()
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.NoError(t, g.Release(suite.Lasting(t)))
			suite.Soon(t, func() bool { return s.EphemeralBytes() == 0 }, fmt.Sprintf("nothing is left: step %d", step))
			if stop() {
				break
			}

			link.LoseReply(recipestest.OpAny, 0)
		}

		require.Same(t, s, suite.Session(t, c))
	})
}

// If other clients delete a node that has no watch, the client finds out when there is no room.
func TestNodesThatOthersHaveDeletedAreFoundWhenASessionIsFull(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		root := srv.Root(t)
		c := srv.Client(t)
		s, other := suite.Session(t, c), suite.Session(t, srv.Client(t))
		suite.Ensure(t, s, root)
		paths := fill(t, s, root)
		time.Sleep(2 * time.Minute)
		before := s.EphemeralBytes()

		for _, path := range paths[:10] {
			require.NoError(t, other.Delete(suite.Lasting(t), path, -1))
		}

		require.Equal(t, before, s.EphemeralBytes())

		more := root + "/" + strings.Repeat("m", 20_000)
		require.ErrorIs(t, s.Create(suite.Lasting(t), more, nil, zk.FlagEphemeral), protocol.ErrSessionFull)
		suite.Soon(t, func() bool { return s.EphemeralBytes() < before }, "the deleted ones are found")
		time.Sleep(time.Second)
		require.Equal(t, before/len(paths)*(len(paths)-10), s.EphemeralBytes())
		require.NoError(t, s.Create(suite.Lasting(t), more, nil, zk.FlagEphemeral))
		require.NoError(t, c.Close())
	})
}

// The client looks for them before that, so that they make no session full.
func TestNodesThatOthersHaveDeletedDoNotMakeASessionFull(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		root, s, other := srv.Root(t), suite.Session(t, srv.Client(t)), suite.Session(t, srv.Client(t))
		suite.Ensure(t, s, root)
		for i := range 400 {
			path := fmt.Sprint(root, "/", i, strings.Repeat("x", 5000))
			require.NoError(t, s.Create(t.Context(), path, nil, zk.FlagEphemeral))
			require.NoError(t, other.Delete(t.Context(), path, -1))
		}
	})
}

// Only the transaction sees that a node is gone that isn't watched yet. The release marker's create
// fails first if the node above is gone, too.
func TestNodeThatATransactionFindsGoneMakesRoom(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		path, c := srv.Root(t), srv.Client(t)
		s, other := suite.Session(t, c), suite.Session(t, srv.Client(t))
		for _, writes := range []bool{true, false} {
			g := suite.Hold(t, c, path)
			require.NoError(t, other.Delete(t.Context(), path+"/"+g.Node(), -1))
			require.NoError(t, other.Delete(t.Context(), path, -1))
			if writes {
				_, err := g.Multi(t.Context(), &zk.CheckVersionRequest{Path: path, Version: -1})
				require.ErrorIs(t, err, protocol.ErrNodeDeleted)
			} else {
				require.ErrorIs(t, line.Release(t.Context(), s, path+"/"+g.Node()), zk.ErrNoNode)
			}
			require.Zero(t, s.EphemeralBytes())
		}
	})
}

// The documents promise that ten thousand leases at paths of 60 bytes fit into a session.
func TestTenThousandLeasesFitIntoASession(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		c := srv.Client(t)
		path := srv.Root(t) + "/"
		path += strings.Repeat("x", max(1, 60-len(path)))
		g := suite.Hold(t, c, path)
		one := suite.Session(t, c).EphemeralBytes() - max(0, len(path)-60)
		require.Less(t, 10_000*one, mostEphemeral)
		require.NoError(t, g.Release(suite.Lasting(t)))
	})
}

// Nodes have no numbers before they are created, so several of them have one path. Each counts.
func TestEachOfSeveralSequentialNodesIsCountedBeforeItIsThere(t *testing.T) {
	suite.Bubble(t, func(t *testing.T, srv *recipestest.Server) {
		root, link := srv.Root(t), srv.Link(t)
		c := link.Client(t)
		s := suite.Session(t, c)
		suite.Ensure(t, s, root)
		const n = 5
		one := len(s.Path(root+"/n-")) + 10 + 4
		link.StallReplies()

		for range n {
			go recipe.Create(s.Conn(), s.Path(root+"/n-"), nil, zk.FlagEphemeralSequential, zk.WorldACL(zk.PermAll))
		}

		synctest.Wait()
		require.Equal(t, n*one, s.EphemeralBytes())

		// The answers are lost. When there is no room, the client looks for the nodes.
		suite.Blip(link)
		require.NoError(t, s.Fence(suite.Lasting(t)))
		require.Equal(t, n*one, s.EphemeralBytes())
		all, _, err := s.Children(suite.Lasting(t), root)
		require.NoError(t, err)
		require.Len(t, all, n)

		for _, child := range all[1:] {
			require.NoError(t, suite.Session(t, srv.Client(t)).Delete(suite.Lasting(t), root+"/"+child, -1))
		}

		fill(t, s, root)
		time.Sleep(time.Second)
		all, _, err = s.Children(suite.Lasting(t), root)
		require.NoError(t, err)
		sum := 0
		for _, child := range all {
			sum += len(s.Path(root+"/"+child)) + 4
		}

		require.Equal(t, sum, s.EphemeralBytes())
		require.NoError(t, c.Close())
	})
}
