package protocol_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// A node that a transaction deletes and creates again is there, and is counted.
func TestNodeThatIsReplacedInOneTransactionIsCounted(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		s, path := session(t, srv.Client(t)), srv.Root(t)+"x"
		require.NoError(t, s.Create(lasting(t), path, nil, zk.FlagEphemeral))
		size := s.EphemeralBytes()
		_, err := s.Multi(lasting(t), &zk.DeleteRequest{Path: path, Version: -1}, &zk.CreateRequest{Path: path, Flags: zk.FlagEphemeral})
		require.NoError(t, err)
		require.Equal(t, size, s.EphemeralBytes())
		require.NoError(t, s.Delete(lasting(t), path, -1))
		require.Zero(t, s.EphemeralBytes())
	})
}

// A create whose answer was lost, and which is then refused, has created nothing if the node is
// another session's. That is found out when there is no room.
func TestNodeThatWasNotCreatedAfterAllIsFoundWhenASessionIsFull(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		root, link := srv.Root(t), srv.Link(t)
		c := link.Client(t)
		s, other := session(t, c), session(t, srv.Client(t))
		_, err := s.EnsurePath(lasting(t), root)
		require.NoError(t, err)
		path := root + "/x"
		require.NoError(t, other.Create(lasting(t), path, nil, zk.FlagEphemeral))
		link.LoseReply(recipestest.OpCreate, 1)
		require.ErrorIs(t, s.Create(lasting(t), path, nil, zk.FlagEphemeral), zk.ErrNodeExists)

		fill(t, s, root) // which looks in the end
		time.Sleep(time.Second)
		before := s.EphemeralBytes()
		require.NoError(t, s.Delete(lasting(t), root+"/00000-"+strings.Repeat("f", 9000), -1))
		all, _, err := s.Children(lasting(t), root)
		require.NoError(t, err)
		one := len(s.Path(root+"/00000-")) + 9000 + 4
		require.Equal(t, (len(all)-1)*one, s.EphemeralBytes(), "all but the other session's")
		require.Equal(t, before-one, s.EphemeralBytes())
		require.NoError(t, other.Delete(lasting(t), path, -1))
		require.NoError(t, c.Close())
	})
}

// Nodes have no numbers before they are created, so several of them have one path. Each counts.
func TestEachOfSeveralSequentialNodesIsCountedBeforeItIsThere(t *testing.T) {
	bubble(t, func(t *testing.T, srv *recipestest.Server) {
		root, link := srv.Root(t), srv.Link(t)
		c := link.Client(t)
		s := session(t, c)
		_, err := s.EnsurePath(lasting(t), root)
		require.NoError(t, err)
		const n = 5
		one := len(s.Path(root+"/n-")) + 10 + 4
		link.StallReplies()
		for range n {
			go recipe.Create(s.Conn(), s.Path(root+"/n-"), nil, zk.FlagEphemeralSequential, zk.WorldACL(zk.PermAll))
		}
		synctest.Wait()
		require.Equal(t, n*one, s.EphemeralBytes())

		// The answers are lost. What there is is looked for when there is no room.
		link.Cut()
		link.Heal()
		require.NoError(t, s.Fence(lasting(t)))
		require.Equal(t, n*one, s.EphemeralBytes())
		all, _, err := s.Children(lasting(t), root)
		require.NoError(t, err)
		require.Len(t, all, n)
		for _, child := range all[1:] {
			require.NoError(t, session(t, srv.Client(t)).Delete(lasting(t), root+"/"+child, -1))
		}
		fill(t, s, root)
		time.Sleep(time.Second)
		all, _, err = s.Children(lasting(t), root)
		require.NoError(t, err)
		sum := 0
		for _, child := range all {
			sum += len(s.Path(root+"/"+child)) + 4
		}
		require.Equal(t, sum, s.EphemeralBytes())
		require.NoError(t, c.Close())
	})
}
