package interop_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/group"
	"github.com/zkrecipes/zkrecipes/internal/real/interop"
	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/recipestest/ensemble"
)

func TestCuratorSeesOurMembersAndWeSeeCurators(t *testing.T) {
	t.Parallel()
	srv := ensemble.Real(t)
	path, peer := srv.Root(t)+"/g", interop.Curator(t, srv.ConnectString())
	g := group.New(srv.Client(t), path)
	until := watch(t, g)
	m := join(t, g, "ours", "1")
	// Each library sees the other's members, and changes of their data.
	peer.Do(t, "join", "h", path, "theirs", "2")
	until("ours=1", "theirs=2")
	seen := func(want string) {
		suite.Soon(t, func() bool { return peer.Do(t, "members", "h") == want }, want)
	}
	seen("ours=1 theirs=2")
	require.NoError(t, m.Set(t.Context(), []byte("3")))
	seen("ours=3 theirs=2")
	require.ErrorIs(t, suite.Err(g.TryJoin(t.Context(), "theirs", nil)), group.ErrNameTaken)

	// Members that leave disappear at the other library, and their names are free again.
	leave(t, m)
	seen("theirs=2")
	until("theirs=2")
	peer.Do(t, "leave", "h")
	until()
	leave(t, join(t, g, "theirs", ""))
}

// kazoo's Party lists the nodes whose names contain __party__, and shows their data.
func TestKazooSeesOurMembersAndWeSeeKazoos(t *testing.T) {
	t.Parallel()
	srv := ensemble.Real(t)
	path, peer := srv.Root(t)+"/g", interop.Kazoo(t, srv.ConnectString())
	g := group.New(srv.Client(t), path)
	until := watch(t, g)
	deep, shallow := join(t, g, "ours__party__", "ours"), join(t, g, "shallow", "")
	peer.Do(t, "join", "deep", path, "theirs")
	peer.Do(t, "join", "shallow", path, "host", "shallow")

	// Party and ShallowParty name members differently, so each sees its own kind.
	peers := suite.Got(g.Await(t.Context(), 4))(t)
	require.Equal(t, "ours theirs", peer.Do(t, "members", "deep"))
	require.Regexp(t, `^[0-9a-f]{32}__party__$`, peers[2].Name)
	require.Equal(t, "theirs", string(peers[2].Data))
	require.True(t, strings.HasSuffix(peers[3].Name, "-host"))
	require.Subset(t, strings.Fields(peer.Do(t, "members", "shallow")), []string{"host", "ours__party__", "shallow"})

	leave(t, deep, shallow)
	require.Equal(t, "theirs", peer.Do(t, "members", "deep"))
	peer.Do(t, "leave", "deep")
	peer.Do(t, "leave", "shallow")
	until()
}
