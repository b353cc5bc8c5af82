package session

import (
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
)

// TestDraftsOfOnePath has two creates of one path. If one fails, the node of the other stays in the
// account, even if its answer is lost.
func TestDraftsOfOnePath(t *testing.T) {
	op := &zk.CreateRequest{Path: "/a", Flags: zk.FlagEphemeral}
	for _, outcome := range []error{nil, zk.ErrConnectionClosed} {
		var a account
		failing, err := a.draw(op)
		require.NoError(t, err)
		other, err := a.draw(op)
		require.NoError(t, err)
		require.ErrorIs(t, other.end(outcome, "/a"), outcome)
		require.ErrorIs(t, failing.end(zk.ErrNodeExists), zk.ErrNodeExists)
		require.Equal(t, len("/a")+4, a.used)
	}
}

// TestLostReplyOfASequentialCreate deletes a node whose create got no reply. The account has it
// without its number until then.
func TestLostReplyOfASequentialCreate(t *testing.T) {
	create := &zk.CreateRequest{Path: "/a-", Flags: zk.FlagEphemeralSequential}
	node := "/a-0000000007"

	var deleted account
	created, err := deleted.draw(create)
	require.NoError(t, err)
	require.ErrorIs(t, created.end(zk.ErrConnectionClosed), zk.ErrConnectionClosed)
	require.Equal(t, len(node)+4, deleted.used)
	deletion, err := deleted.draw(&zk.DeleteRequest{Path: node})
	require.NoError(t, err)
	require.NoError(t, deletion.end(nil))
	require.Zero(t, deleted.used)

	var never account
	created, err = never.draw(create)
	require.NoError(t, err)
	settled(created.end(zk.ErrConnectionClosed), false)
	require.Zero(t, never.used, "the create wasn't executed")
}
