package protocol_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

const mostEphemeral = 1_500_000

// fill creates ephemeral nodes at long paths through s until there is no more room. It returns their
// paths.
func fill(t testing.TB, s *recipe.Session, dir string) (paths []string) {
	t.Helper()
	for i := 0; ; i++ {
		path := fmt.Sprintf("%s/%05d-%s", dir, i, strings.Repeat("f", 9000))
		if err := s.Create(lasting(t), path, nil, zk.FlagEphemeral); err != nil {
			require.ErrorIs(t, err, protocol.ErrSessionFull)
			return paths
		}
		paths = append(paths, path)
	}
}

func TestSessionIsFullBeforeAServerCannotEndIt(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		root, link := srv.Root(t), srv.Link(t)
		c := link.Client(t)
		s := session(t, c)
		_, err := s.EnsurePath(lasting(t), root)
		require.NoError(t, err)
		require.Zero(t, s.EphemeralBytes())

		paths := fill(t, s, root)
		require.LessOrEqual(t, s.EphemeralBytes(), mostEphemeral)
		require.Greater(t, s.EphemeralBytes(), mostEphemeral-10_000)
		require.Equal(t, len(paths)*(len(s.Path(paths[0]))+4), s.EphemeralBytes())

		// All views and recipes draw on the same account, and nothing is sent.
		time.Sleep(2 * time.Minute) // for what others may have deleted to be looked for
		view := session(t, c.With(protocol.WithACL(zk.WorldACL(zk.PermAll))))
		long := root + "/" + strings.Repeat("g", 9000)
		creates, multis := link.Count(recipestest.OpCreate), link.Count(recipestest.OpMulti)
		require.ErrorIs(t, view.Create(lasting(t), long, nil, zk.FlagEphemeral), protocol.ErrSessionFull)
		_, err = view.Multi(lasting(t), &zk.CreateRequest{Path: long, Flags: zk.FlagEphemeralSequential})
		require.ErrorIs(t, err, protocol.ErrSessionFull)
		_, err = lineAt(c, long).Enter(lasting(t), request)
		require.ErrorIs(t, err, protocol.ErrSessionFull)
		require.Equal(t, creates, link.Count(recipestest.OpCreate))
		require.Equal(t, multis, link.Count(recipestest.OpMulti))

		// Persistent nodes take nothing, and what is created and deleted at once neither.
		require.NoError(t, s.Create(lasting(t), long, nil, 0))
		require.NoError(t, s.Delete(lasting(t), long, -1))
		_, err = s.Multi(lasting(t), &zk.CreateRequest{Path: long, Flags: zk.FlagEphemeral}, &zk.DeleteRequest{Path: long, Version: -1})
		require.NoError(t, err)

		// One that goes makes room for another one, in the same transaction, too.
		_, err = s.Multi(lasting(t), &zk.CreateRequest{Path: long, Flags: zk.FlagEphemeral}, &zk.DeleteRequest{Path: paths[0], Version: -1})
		require.NoError(t, err)
		require.NoError(t, s.Delete(lasting(t), long, -1))
		for _, path := range paths[1:] {
			require.NoError(t, s.Delete(lasting(t), path, -1))
		}
		require.Zero(t, s.EphemeralBytes())
	})
}

// Whatever packet is lost, the account has the nodes that are there, and none when all have gone.
func TestAccountIsRightWhateverPacketIsLost(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link, root := srv.Link(t), srv.Root(t)
		c, other := link.Client(t), session(t, srv.Client(t))
		s := session(t, c)
		for step := 1; ; step++ {
			path := fmt.Sprintf("%s/%d", root, step)
			stop := link.At(step, func() { link.LoseReply(recipestest.OpAny, 2) })
			g := hold(t, c, path)
			names, _, err := other.Children(lasting(t), path)
			require.NoError(t, err)
			require.Len(t, names, 1)
			require.Equal(t, len(s.Path(path+"/"+names[0]))+4, s.EphemeralBytes(), "step %d", step)

			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, err = lineAt(c, path).Enter(ctx, request)
			cancel()
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.NoError(t, g.Release(lasting(t)))
			suite.Soon(t, func() bool { return s.EphemeralBytes() == 0 }, fmt.Sprintf("nothing is left: step %d", step))
			if stop() {
				break
			}
			link.LoseReply(recipestest.OpAny, 0)
		}
		require.Same(t, s, session(t, c))
	})
}

// What an answer that was lost may have created is counted until it is known.
func TestOutcomeThatIsUnknownIsCounted(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		link, root := srv.Link(t), srv.Root(t)
		s := session(t, link.Client(t))
		_, err := s.EnsurePath(lasting(t), root)
		require.NoError(t, err)
		size := len(s.Path(root+"/x")) + 4
		link.LoseReply(recipestest.OpCreate, 100)
		err = s.Create(within(t, time.Second), root+"/x", nil, zk.FlagEphemeral)
		require.ErrorIs(t, err, protocol.ErrUncertain)
		require.Equal(t, size, s.EphemeralBytes())
		link.LoseReply(recipestest.OpCreate, 0)
		require.NoError(t, s.Delete(lasting(t), root+"/x", -1))
		require.Zero(t, s.EphemeralBytes())

		require.ErrorIs(t, s.Create(lasting(t), root+"/none/x", nil, zk.FlagEphemeral), zk.ErrNoNode)
		require.Zero(t, s.EphemeralBytes())
	})
}

// Others may delete a node that nobody watches. That is found out when there is no room.
func TestNodesThatOthersHaveDeletedAreFoundWhenASessionIsFull(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		root := srv.Root(t)
		c := srv.Client(t)
		s, other := session(t, c), session(t, srv.Client(t))
		_, err := s.EnsurePath(lasting(t), root)
		require.NoError(t, err)
		paths := fill(t, s, root)
		time.Sleep(2 * time.Minute)
		before := s.EphemeralBytes()
		for _, path := range paths[:10] {
			require.NoError(t, other.Delete(lasting(t), path, -1))
		}
		require.Equal(t, before, s.EphemeralBytes())

		more := root + "/" + strings.Repeat("m", 20_000)
		require.ErrorIs(t, s.Create(lasting(t), more, nil, zk.FlagEphemeral), protocol.ErrSessionFull)
		suite.Soon(t, func() bool { return s.EphemeralBytes() < before }, "the deleted ones are found")
		time.Sleep(time.Second)
		require.Equal(t, before/len(paths)*(len(paths)-10), s.EphemeralBytes())
		require.NoError(t, s.Create(lasting(t), more, nil, zk.FlagEphemeral))
		require.NoError(t, c.Close())
	})
}

// What the documents promise: ten thousand leases at paths of 60 bytes fit into a session.
func TestTenThousandLeasesFitIntoASession(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		c := srv.Client(t)
		path := srv.Root(t) + "/"
		path += strings.Repeat("x", max(1, 60-len(path)))
		g := hold(t, c, path)
		one := session(t, c).EphemeralBytes() - max(0, len(path)-60)
		require.Less(t, 10_000*one, mostEphemeral)
		require.NoError(t, g.Release(lasting(t)))
	})
}
